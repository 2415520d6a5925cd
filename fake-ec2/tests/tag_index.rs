//! Instances are found by their tags through an index. Whatever happens to them, it has to find what a walk over all of them finds:
//! a filter with a pattern in it walks, and `\v1` is a pattern that means `v1` alone.

mod common;

use common::{Account, values};

const KEYS: [&str; 3] = ["team", "stage", "owner"];
const VALUES: [&str; 3] = ["v1", "v2", "w"];

/// A sequence that is the same in every run (the constants are Knuth's for a linear congruential generator).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

async fn found(account: &Account, filters: &[(&str, &str)]) -> Vec<String> {
    let numbered = filters.iter().enumerate().flat_map(|(index, (name, value))| {
        let number = index + 1;
        [(format!("Filter.{number}.Name"), *name), (format!("Filter.{number}.Value.1"), *value)]
    });
    let numbered: Vec<_> = numbered.collect();
    let params: Vec<(&str, &str)> = numbered.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    values(&account.ok("DescribeInstances", &params).await, "instanceId")
}

async fn launch(account: &Account, key: &str, value: &str) -> Vec<String> {
    let image = account.ec2.cloud().images().into_iter().find(|image| image.architecture == "x86_64").unwrap().id;
    let params = [
        ("ImageId", image.as_str()),
        ("InstanceType", "m5.large"),
        ("SubnetId", &account.setup.subnet_ids[0]),
        ("MinCount", "2"),
        ("MaxCount", "2"),
        ("TagSpecification.1.ResourceType", "instance"),
        ("TagSpecification.1.Tag.1.Key", key),
        ("TagSpecification.1.Tag.1.Value", value),
    ];
    values(&account.ok("RunInstances", &params).await, "instanceId")
}

/// Compares the index with a walk for every key and value, alone and joined.
async fn compare(account: &Account) -> usize {
    let mut seen = 0;
    for key in KEYS {
        let name = format!("tag:{key}");
        for value in VALUES {
            let walked = found(account, &[(&name, &format!("\\{value}"))]).await;
            assert_eq!(found(account, &[(&name, value)]).await, walked, "{key}={value}");
            let owned = found(account, &[("tag:owner", "\\w"), (&name, &format!("\\{value}"))]).await;
            assert_eq!(found(account, &[("tag:owner", "w"), (&name, value)]).await, owned, "owner=w and {key}={value}");
            seen += walked.len();
        }
        assert_eq!(
            found(account, &[("tag-key", key)]).await,
            found(account, &[("tag-key", &format!("\\{key}"))]).await,
            "{key}"
        );
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn the_index_finds_what_a_walk_finds_whatever_happens() {
    let account = Account::new();
    let mut dice = Dice(7);
    let mut ids = Vec::new();
    let mut seen = 0;
    for step in 0..120 {
        let (key, value) = (KEYS[dice.below(3)], VALUES[dice.below(3)]);
        if ids.is_empty() || step % 5 == 0 {
            ids.extend(launch(&account, key, value).await);
        }
        let id: String = ids[dice.below(ids.len())].clone();
        let tag = [("ResourceId.1", id.as_str()), ("Tag.1.Key", key), ("Tag.1.Value", value)];
        match dice.below(4) {
            0 | 1 => drop(account.ok("CreateTags", &tag).await),
            2 => drop(account.ok("DeleteTags", &tag[..2]).await),
            _ => {
                account.ok("TerminateInstances", &[("InstanceId.1", &id)]).await;
                // Half of the terminated instances are forgotten, and are not to be found by their tags either.
                if dice.below(2) == 0 {
                    tokio::time::sleep(std::time::Duration::from_secs(4_000)).await;
                    let left = values(&account.ok("DescribeInstances", &[]).await, "instanceId");
                    ids.retain(|id| left.contains(id));
                }
            }
        }
        seen += compare(&account).await;
    }
    assert!(seen > 1_000, "the filters have to find something for this to mean anything: {seen}");
}

#[tokio::test(start_paused = true)]
async fn pages_by_tag_are_everything_once_and_in_order() {
    let account = Account::new();
    for number in 0..8 {
        launch(&account, "team", if number % 2 == 0 { "v1" } else { "v2" }).await;
    }
    let everything = found(&account, &[("tag:team", "v1")]).await;
    assert_eq!(everything.len(), 8);
    let filter = [("Filter.1.Name", "tag:team"), ("Filter.1.Value.1", "v1"), ("MaxResults", "5")];
    let first = account.ok("DescribeInstances", &filter).await;
    let token = values(&first, "nextToken").remove(0);
    let second = account.ok("DescribeInstances", &[&filter[..], &[("NextToken", &token)]].concat()).await;
    assert!(values(&second, "nextToken").is_empty());
    let pages = [values(&first, "instanceId"), values(&second, "instanceId")];
    assert_eq!(pages.each_ref().map(Vec::len), [5, 3]);
    let mut sorted = pages.concat();
    sorted.sort();
    let mut wanted = everything;
    wanted.sort();
    assert_eq!(sorted, wanted);
    assert!(pages[0].iter().max() < pages[1].iter().min(), "pages follow the order of ids");
}
