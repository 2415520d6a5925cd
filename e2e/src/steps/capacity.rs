//! What was asked of EC2, and what it gave.

use super::Vocabulary;
use crate::cloud::{CloudCall, Instance, SpotOffer};
use crate::eventually::Seen;
use crate::things::instance_requirements;
use crate::world::{Moment, World};
use anyhow::{Context, ensure};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn register(steps: &mut Vocabulary) {
    steps.add("spot capacity is exhausted", |world, _| {
        Box::pin(async move { world.cloud().exhaust("*", "*", "spot", true).await })
    });
    steps.add("spot capacity is restored", |world, _| {
        Box::pin(async move { world.cloud().exhaust("*", "*", "spot", false).await })
    });
    steps.add("the instance is an on-demand instance", |world, _| {
        Box::pin(async move {
            let instance = world.subject_instance().await?;
            ensure!(!instance.spot, "{} is a spot instance", instance.id);
            Ok(())
        })
    });
    steps.add("the instance is a spot instance", |world, _| {
        Box::pin(async move {
            let instance = world.subject_instance().await?;
            ensure!(instance.spot, "{} is an on-demand instance", instance.id);
            Ok(())
        })
    });
    steps.add("the instance is of type {string}", |world, arguments| {
        Box::pin(async move {
            let instance = world.subject_instance().await?;
            ensure!(instance.instance_type == arguments.text(0), "it is of type {}", instance.instance_type);
            Ok(())
        })
    });
    steps.add("the instance is running", |world, _| {
        Box::pin(async move {
            let instance = world.subject_instance().await?;
            ensure!(instance.state == "running", "it is {}", instance.state);
            Ok(())
        })
    });
    steps.add("the instance has the security groups {string}", |world, arguments| {
        Box::pin(async move {
            let instance = world.subject_instance().await?;
            let wanted: BTreeSet<String> = arguments.text(0).split(", ").map(str::to_owned).collect();
            ensure!(instance.security_groups == wanted, "it has {:?}", instance.security_groups);
            Ok(())
        })
    });
    steps.add(
        "the instance carries the names of its node, NodeClaim and cluster {string} as tags",
        |world, arguments| {
            Box::pin(async move {
                let (node, claim) = (world.subject_node_name().await?, world.subject().await?.node_claim);
                let instance = world.subject_instance().await?;
                let wanted = [
                    ("Name", node.as_str()),
                    ("karpenter.sh/nodeclaim", &claim),
                    ("eks:eks-cluster-name", arguments.text(0)),
                ];
                for (key, value) in wanted {
                    let found = instance.tags.get(key);
                    ensure!(found.is_some_and(|found| found == value), "{key} is {found:?}");
                }
                Ok(())
            })
        },
    );
    steps.add("the name of the instance's image ends in {string}", |world, arguments| {
        Box::pin(async move {
            let instance = world.subject_instance().await?;
            ensure!(instance.image_name.ends_with(arguments.text(0)), "it is {}", instance.image_name);
            Ok(())
        })
    });
    steps.add("no fleet request offers a type of more than {integer} vCPUs", |world, arguments| {
        Box::pin(async move {
            let most = arguments.integer(0);
            let vcpus: BTreeMap<String, usize> =
                world.cloud().spot_offers().await?.into_iter().map(|o| (o.instance_type, o.vcpus as usize)).collect();
            each_launch(world, |types| {
                let large = types.iter().find(|kind| vcpus.get(**kind).is_none_or(|vcpus| *vcpus > most));
                ensure!(large.is_none(), "one offers {}", large.unwrap_or(&""));
                Ok(())
            })
            .await
        })
    });
    steps.add("every fleet request offers between {integer} and {integer} types", |world, arguments| {
        Box::pin(async move {
            let range = arguments.integer(0)..=arguments.integer(1);
            each_launch(world, |types| {
                ensure!(range.contains(&types.len()), "one offers {} types", types.len());
                Ok(())
            })
            .await
        })
    });
    steps.add(
        "every type that a fleet request offers is of category {string} and a generation above {integer}",
        |world, arguments| {
            Box::pin(async move {
                let categories: Vec<&str> = arguments.text(0).split(", ").collect();
                each_launch(world, |types| {
                    for kind in types {
                        let (category, generation) = instance_requirements(kind)?;
                        ensure!(categories.contains(&category.as_str()), "{kind} is of category {category}");
                        ensure!(generation > arguments.integer(1), "{kind} is of generation {generation}");
                    }
                    Ok(())
                })
                .await
            })
        },
    );
    steps.add("no fleet request offers type {string}", |world, arguments| {
        Box::pin(async move {
            each_launch(world, |types| {
                ensure!(!types.contains(arguments.text(0)), "one does");
                Ok(())
            })
            .await
        })
    });
    steps.add("exactly {integer} vCPUs run in all", |world, arguments| {
        Box::pin(async move {
            let vcpus: BTreeMap<String, u32> =
                world.cloud().spot_offers().await?.into_iter().map(|o| (o.instance_type, o.vcpus)).collect();
            let live = world.cloud().instances().await?.into_iter().filter(Instance::is_live);
            let sum: u32 = live.map(|instance| vcpus.get(&instance.instance_type).copied().unwrap_or_default()).sum();
            ensure!(sum as usize == arguments.integer(0), "{sum} do");
            Ok(())
        })
    });
    steps.add("no instance is running", |world, _| {
        Box::pin(async move {
            let live: Vec<String> =
                world.cloud().instances().await?.into_iter().filter(|i| i.is_live()).map(|i| i.id).collect();
            ensure!(live.is_empty(), "{}", live.join(", "));
            Ok(())
        })
    });
    steps.add("EC2 was never asked for an instance", |world, _| {
        Box::pin(async move {
            let calls = world.cloud().calls().await?;
            let launches: Vec<String> = calls
                .iter()
                .filter(|call| call.is_launch())
                .map(|call| format!("{} at {}", call.name, call.at))
                .collect();
            ensure!(launches.is_empty(), "it was: {}", launches.join(", "));
            Ok(())
        })
    });
    steps.add(
        "the instance is a spot instance of category {string}, {string} or {string} and a generation above {integer}",
        |world, arguments| {
            Box::pin(async move {
                let instance = world.subject_instance().await?;
                let (category, generation) = instance_requirements(&instance.instance_type)?;
                ensure!(instance.spot, "{} is no spot instance", instance.id);
                let categories = [arguments.text(0), arguments.text(1), arguments.text(2)];
                ensure!(
                    categories.contains(&category.as_str()),
                    "{} is of category {category}",
                    instance.instance_type
                );
                ensure!(generation > arguments.integer(3), "{} is of generation {generation}", instance.instance_type);
                Ok(())
            })
        },
    );
    steps.add("the instance has between {integer} and {integer} vCPUs", |world, arguments| {
        Box::pin(async move {
            let instance = world.subject_instance().await?;
            let offers = world.cloud().spot_offers().await?;
            let offer = offers.iter().find(|offer| offer.instance_type == instance.instance_type);
            let vcpus =
                offer.with_context(|| format!("{} is not in the catalogue", instance.instance_type))?.vcpus as usize;
            let range = arguments.integer(0)..=arguments.integer(1);
            ensure!(range.contains(&vcpus), "{} has {vcpus} vCPUs", instance.instance_type);
            Ok(())
        })
    });
    steps.add("the instance is the one that the catalogue's prices give for the request", |world, _| {
        Box::pin(async move { best_offer_was_taken(world).await })
    });
    steps.add(
        "exactly {integer} CreateFleet call(s) of type {string} asked for {integer} {word} instance(s) with strategy {string}",
        |world, arguments| {
            Box::pin(async move {
                let calls = world.cloud().calls().await?;
                let fleets: Vec<&CloudCall> = calls.iter().filter(|call| call.is_launch()).collect();
                ensure!(fleets.len() == arguments.integer(0), "there were {} launches", fleets.len());
                for fleet in fleets {
                    let parameter = |name: &str| fleet.parameters.get(name).map(String::as_str);
                    ensure!(parameter("Type") == Some(arguments.text(1)), "Type is {:?}", parameter("Type"));
                    let count = parameter("TargetCapacitySpecification.TotalTargetCapacity");
                    ensure!(count == Some(arguments.text(2)), "TotalTargetCapacity is {count:?}");
                    let market = parameter("TargetCapacitySpecification.DefaultTargetCapacityType");
                    ensure!(market == Some(arguments.text(3)), "DefaultTargetCapacityType is {market:?}");
                    let options = if arguments.text(3) == "spot" { "SpotOptions" } else { "OnDemandOptions" };
                    let strategy = parameter(&format!("{options}.AllocationStrategy"));
                    ensure!(strategy == Some(arguments.text(4)), "{options}.AllocationStrategy is {strategy:?}");
                    let types = types_of(fleet);
                    ensure!(types.len() > 1, "only {types:?} was offered to EC2 to choose from");
                }
                Ok(())
            })
        },
    );
    steps.add("after {duration} exactly {integer} instance(s) is running", |world, arguments| {
        Box::pin(async move {
            world.pass(arguments.duration(0)).await;
            let live: Vec<String> = world
                .cloud()
                .instances()
                .await?
                .into_iter()
                .filter(|i| i.is_live())
                .map(|i| format!("{} {}", i.id, i.state))
                .collect();
            ensure!(live.len() == arguments.integer(1), "{}", live.join(", "));
            Ok(())
        })
    });
    steps.add("the instance is terminated within {duration}", |world, arguments| {
        Box::pin(async move {
            world
                .eventually("the instance is terminated", arguments.duration(0), async || {
                    let instance = world.subject_instance().await?;
                    let gone = matches!(instance.state.as_str(), "shutting-down" | "terminated");
                    Ok(Seen::when(gone, (), || instance.state.clone()))
                })
                .await
        })
    });
    steps.add("the instance is reclaimed {duration} after the notice", |world, arguments| {
        Box::pin(async move {
            let limit = arguments.duration(0);
            let second = std::time::Duration::from_secs(1);
            world
                .by("the instance is reclaimed", Moment::Notice, limit + second, async || {
                    let instance = world.subject_instance().await?;
                    Ok(Seen::when(!instance.is_live(), (), || instance.state.clone()))
                })
                .await?;
            let passed = std::time::Duration::try_from(world.now().duration_since(world.moment(Moment::Notice)?))?;
            ensure!(passed + second >= limit, "it went {passed:?} after the notice");
            // A look that comes late sees no difference to an instance that was terminated long before.
            let reclaim = world.moment(Moment::Notice)?.checked_add(jiff::SignedDuration::try_from(limit)?)?;
            let id = world.subject().await?.instance;
            let calls = world.cloud().calls().await?;
            let ends = |call: &&CloudCall| {
                call.name == "ec2:TerminateInstances" && call.parameters.values().any(|value| *value == id)
            };
            if let Some(call) = calls.iter().filter(ends).find(|call| call.status == 200 && call.at < reclaim) {
                anyhow::bail!("it was terminated by a call at {}, before the reclaim", call.at);
            }
            Ok(())
        })
    });
    steps.add(
        "no fleet request within {duration} of the notice contains the spot offering of the instance",
        |world, arguments| {
            Box::pin(async move {
                let notice = world.moment(Moment::Notice)?;
                let end = notice.checked_add(jiff::SignedDuration::try_from(arguments.duration(0))?)?;
                let left = std::time::Duration::try_from(end.duration_since(world.now())).unwrap_or_default();
                world.pass(left).await;
                let instance = world.subject_instance().await?;
                let calls = world.cloud().calls().await?;
                let later = calls.iter().filter(|call| call.is_launch() && call.at > notice && call.at <= end);
                let mut seen = 0;
                for call in later {
                    seen += 1;
                    let offered =
                        overrides(call).any(|(kind, zone)| kind == instance.instance_type && zone == instance.zone);
                    ensure!(
                        !offered,
                        "the launch at {} offers {} in {}",
                        call.at,
                        instance.instance_type,
                        instance.zone
                    );
                }
                ensure!(seen > 0, "nothing was launched after the notice");
                Ok(())
            })
        },
    );
}

/// The types that a fleet request offers.
fn types_of(call: &CloudCall) -> BTreeSet<&str> {
    call.ending(".InstanceType").map(|(_, value)| value).collect()
}

/// Checks the types of every launch; there must be one.
async fn each_launch(world: &World, check: impl Fn(&BTreeSet<&str>) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let calls = world.cloud().calls().await?;
    let launches: Vec<&CloudCall> = calls.iter().filter(|call| call.is_launch()).collect();
    ensure!(!launches.is_empty(), "EC2 was never asked for an instance");
    for launch in launches {
        check(&types_of(launch)).with_context(|| format!("the launch at {}", launch.at))?;
    }
    Ok(())
}

/// The (type, zone) pairs of a fleet request.
pub(super) fn overrides(call: &CloudCall) -> impl Iterator<Item = (&str, &str)> {
    call.ending(".InstanceType").map(|(key, kind)| {
        let zone_key = key.replace(".InstanceType", ".AvailabilityZone");
        (kind, call.parameters.get(&zone_key).map_or("", String::as_str))
    })
}

/// Checks the choice against the catalogue and the weights that the fake cloud documents as assumed, from outside: of all spot offers that satisfy the
/// NodePool's requirements and are certain to hold the pods, none that weighs less (price, made dearer by a tenth for each
/// band of interruption risk) may have been passed over.
async fn best_offer_was_taken(world: &World) -> anyhow::Result<()> {
    let instance = world.subject_instance().await?;
    let launch = world.launch_of(&instance.id).await?;
    let asked: BTreeSet<(&str, &str)> = overrides(&launch).collect();
    let offers = world.cloud().spot_offers().await?;
    let weight = |offer: &SpotOffer| offer.price * (1.0 + 0.1 * f64::from(offer.interruption_band));
    let is = |offer: &SpotOffer, kind: &str, zone: &str| offer.instance_type == kind && offer.zone == zone;
    let taken = offers
        .iter()
        .find(|offer| is(offer, &instance.instance_type, &instance.zone))
        .context("the market has no such offer")?;
    let mut better = offers.iter().filter(|offer| weight(offer) < weight(taken));
    let passed_over = better.find(|offer| asked.contains(&(offer.instance_type.as_str(), offer.zone.as_str())));
    if let Some(offer) = passed_over {
        anyhow::bail!(
            "{} in {} weighs {:.4}, the instance {:.4}",
            offer.instance_type,
            offer.zone,
            weight(offer),
            weight(taken)
        );
    }
    // What was not asked for at all, although it would do in a zone that has a subnet: the cheapest must be on the list.
    let zones: BTreeSet<&str> = asked.iter().map(|(_, zone)| *zone).collect();
    let reachable = |offer: &&SpotOffer| zones.contains(offer.zone.as_str()) && would_do(offer);
    let cheapest = offers.iter().filter(reachable).filter(|offer| offer.vcpus >= 8 && offer.price < taken.price);
    for offer in cheapest {
        let listed = asked.contains(&(offer.instance_type.as_str(), offer.zone.as_str()));
        ensure!(
            listed,
            "{} in {} at {} was never asked for; the instance costs {}",
            offer.instance_type,
            offer.zone,
            offer.price,
            taken.price
        );
    }
    Ok(())
}

/// Whether the type satisfies the requirements of the articles' NodePool: category c, m or r, generation above 2, amd64,
/// and not one of the kinds that are left out of ordinary launches (bare metal).
fn would_do(offer: &SpotOffer) -> bool {
    let Ok((category, generation)) = instance_requirements(&offer.instance_type) else { return false };
    let family = offer.instance_type.split('.').next().unwrap_or_default();
    let arm = family.trim_start_matches(char::is_alphabetic).trim_start_matches(char::is_numeric).starts_with('g');
    matches!(category.as_str(), "c" | "m" | "r") && generation > 2 && !arm && !offer.instance_type.contains("metal")
}
