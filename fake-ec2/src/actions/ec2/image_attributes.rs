//! What can be asked and changed of an image by itself: DescribeImageAttribute, ModifyImageAttribute, ResetImageAttribute,
//! EnableImageDeprecation, DisableImageDeprecation.

use super::images::{read_description, write_devices};
use super::{finish, refuse_unsupported, returned_true};
use crate::cloud::Cloud;
use crate::error::ApiError;
use crate::wire::query::Query;
use crate::wire::xml::Xml;
use jiff::{SignedDuration, Timestamp};

/// Attributes that an image here never has.
const ABSENT: [&str; 7] =
    ["kernel", "ramdisk", "sriovNetSupport", "tpmSupport", "uefiData", "lastLaunchedTime", "deregistrationProtection"];

// fidelity: documented(EC2 API Reference, DescribeImageAttribute); assumed: that only an image's owner is told its permissions
pub(super) fn describe_image_attribute(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (id, attribute) = (query.required("ImageId")?, query.required("Attribute")?);
    finish(query)?;
    let image = cloud.images.find(id)?.clone();
    let mut xml = Xml::new();
    xml.text("imageId", id);
    let mut single = |value: Option<&str>| {
        xml.element(attribute, |xml| xml.optional("value", value));
    };
    match attribute {
        "description" => single(Some(&image.description)),
        "bootMode" => single(image.boot_mode.as_deref()),
        "imdsSupport" => single(image.imds_support.as_deref()),
        "blockDeviceMapping" => write_devices(&mut xml, &image.block_devices),
        "productCodes" => xml.element("productCodes", |_| ()),
        "launchPermission" => {
            cloud.images.owned(id, &cloud.config.account)?;
            let everybody = image.public.then_some(("group", "all"));
            let accounts = image.launch_accounts.iter().map(|account| ("userId", account.as_str()));
            let permissions: Vec<_> = everybody.into_iter().chain(accounts).collect();
            xml.list("launchPermission", permissions, |xml, (name, value)| xml.text(name, value));
        }
        absent if ABSENT.contains(&absent) => single(None),
        other => {
            let message = format!("Value ({other}) for parameter attribute is invalid. Unknown image attribute");
            return Err(ApiError::invalid_value(message));
        }
    }
    Ok(xml.into_string())
}

/// Who is to be permitted, or no longer.
struct Permissions<'a> {
    everybody: bool,
    accounts: Vec<&'a str>,
}

impl<'a> Permissions<'a> {
    fn read(accounts: Vec<&'a str>, groups: &[&str]) -> Result<Self, ApiError> {
        let malformed = |item: &str, kind: &str| {
            let message = format!("Invalid attribute item value \"{item}\" for {kind} item type.");
            Err(ApiError::client("InvalidAMIAttributeItemValue", message))
        };
        let is_account = |text: &&str| text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(wrong) = accounts.iter().find(|account| !is_account(account)) {
            return malformed(wrong, "userId");
        }
        match groups.iter().find(|group| **group != "all") {
            Some(wrong) => malformed(wrong, "userGroup"),
            None => Ok(Self { everybody: !groups.is_empty(), accounts }),
        }
    }

    fn structured(query: &Query<'a>, name: &str) -> Result<Self, ApiError> {
        let (mut accounts, mut groups) = (Vec::new(), Vec::new());
        for entry in query.structures(name) {
            refuse_unsupported(&entry, &["OrganizationArn", "OrganizationalUnitArn"])?;
            accounts.extend(entry.text("UserId"));
            groups.extend(entry.text("Group"));
        }
        Self::read(accounts, &groups)
    }

    fn is_empty(&self) -> bool {
        !self.everybody && self.accounts.is_empty()
    }
}

// fidelity: documented(EC2 API Reference, ModifyImageAttribute; Error codes: InvalidAMIAttributeItemValue, and
// InvalidAMIID.Unavailable while it is pending)
pub(super) fn modify_image_attribute(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("ImageId")?;
    refuse_unsupported(query, &["OrganizationArn", "OrganizationalUnitArn", "ProductCode"])?;
    let attribute = query.text("Attribute");
    let (value, operation) = (query.text("Value"), query.text("OperationType"));
    let listed = Permissions::read(query.list("UserId"), &query.list("UserGroup"))?;
    let mut added = Permissions::structured(query, "LaunchPermission.Add")?;
    let mut removed = Permissions::structured(query, "LaunchPermission.Remove")?;
    let imds = query.text("ImdsSupport.Value").or(value.filter(|_| attribute == Some("imdsSupport")));
    let description = query.text("Description.Value").or(value.filter(|_| attribute == Some("description")));
    finish(query)?;
    match operation {
        _ if listed.is_empty() => {}
        Some("add") => added = listed,
        Some("remove") => removed = listed,
        other => {
            let other = other.unwrap_or_default();
            let message =
                format!("Value ({other}) for parameter operationType is invalid. It has to be add or remove.");
            return Err(ApiError::invalid_value(message));
        }
    }
    if let Some(other) = imds.filter(|version| *version != "v2.0") {
        let message = format!("Value ({other}) for parameter imdsSupport is invalid. It has to be v2.0.");
        return Err(ApiError::invalid_value(message));
    }
    let description = description.map(read_description).transpose()?;
    if description.is_none() && imds.is_none() && added.is_empty() && removed.is_empty() {
        return Err(ApiError::client("InvalidParameterCombination", "No attributes specified."));
    }
    cloud.images.launchable(id)?;
    let image = cloud.images.owned(id, &cloud.config.account)?;
    image.public = (image.public || added.everybody) && !removed.everybody;
    image.launch_accounts.extend(added.accounts.into_iter().map(str::to_owned));
    image.launch_accounts.retain(|account| !removed.accounts.contains(&account.as_str()));
    if let Some(description) = description {
        image.description = description.into();
    }
    if let Some(imds) = imds {
        image.imds_support = Some(imds.into());
    }
    Ok(returned_true())
}

// fidelity: documented(EC2 API Reference, ResetImageAttribute: launchPermission alone)
pub(super) fn reset_image_attribute(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let (id, attribute) = (query.required("ImageId")?, query.required("Attribute")?);
    finish(query)?;
    if attribute != "launchPermission" {
        let message = format!("Value ({attribute}) for parameter attribute is invalid. It has to be launchPermission.");
        return Err(ApiError::invalid_value(message));
    }
    let image = cloud.images.owned(id, &cloud.config.account)?;
    image.public = false;
    image.launch_accounts.clear();
    Ok(returned_true())
}

/// How far ahead the deprecation of an image can be, in days of years.
// fidelity: documented(EC2 API Reference, EnableImageDeprecation: ten years from now, two years from creation if public; not in
// the past); assumed: the code
const MAX_YEARS: [i64; 2] = [10, 2];

pub(super) fn enable_image_deprecation(
    cloud: &mut Cloud,
    now: Timestamp,
    query: &Query<'_>,
) -> Result<String, ApiError> {
    let id = query.required("ImageId")?;
    let at = query.time("DeprecateAt")?.ok_or_else(|| ApiError::missing("DeprecateAt"))?;
    finish(query)?;
    let image = cloud.images.owned(id, &cloud.config.account)?;
    let (from, years) = if image.public { (image.created_at, MAX_YEARS[1]) } else { (now, MAX_YEARS[0]) };
    // A leap day more, so that no calendar's ten years are refused.
    let latest = from.checked_add(SignedDuration::from_hours(24 * (365 * years + years / 4 + 1)));
    if at < now || latest.is_ok_and(|latest| at > latest) {
        let message =
            format!("DeprecateAt {at} is invalid: it has to be in the future and at most {years} years ahead.");
        return Err(ApiError::invalid_value(message));
    }
    // Seconds are rounded to the minute.
    let minute = (at.as_second() + 30).div_euclid(60) * 60;
    image.deprecated_at = Some(Timestamp::from_second(minute).unwrap_or(at));
    Ok(returned_true())
}

pub(super) fn disable_image_deprecation(cloud: &mut Cloud, query: &Query<'_>) -> Result<String, ApiError> {
    let id = query.required("ImageId")?;
    finish(query)?;
    cloud.images.owned(id, &cloud.config.account)?.deprecated_at = None;
    Ok(returned_true())
}
