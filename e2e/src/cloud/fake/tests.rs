//! The same account in process and over HTTP, which must not differ.

use super::*;
use crate::account::{self, Account, Pace};
use crate::cloud::RemoteEc2;
use fake_ec2::{Config, FakeEc2};
use http::Request;
use jiff::Timestamp;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A fake-ec2 on a socket that was started otherwise than any test wants it, and what lets it live.
struct Served {
    inside: FakeEc2,
    url: String,
    server: JoinSet<()>,
}

impl Served {
    async fn new() -> Self {
        let inside =
            FakeEc2::new(Config { region: "eu-west-1".into(), seed: 99, ..Config::default() }, Clock::system());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (mut server, serving) = (JoinSet::new(), inside.clone());
        server.spawn(async move { serving.serve(listener).await.unwrap() });
        Self { inside, url, server }
    }

    fn remote(&self) -> RemoteEc2 {
        RemoteEc2::at(&self.url).unwrap()
    }

    async fn describe(&self, times: usize) {
        for _ in 0..times {
            let request = Request::post("/").body("Action=DescribeVpcs&Version=2016-11-15".into()).unwrap();
            assert_eq!(self.inside.handle(request).await.status(), 200);
        }
    }
}

fn options() -> account::Options {
    account::Options {
        clock: Clock::system(),
        seed: 7,
        region: "us-west-2".into(),
        families: vec!["m5".into()],
        served: Some(("https://cluster.test:6443".into(), "Y2VydA==".into())),
        pace: Pace {
            ec2: fake_ec2::Pace { pending: Duration::from_secs(3600), ..Default::default() },
            ..Default::default()
        },
        issuer: None,
        enforce_iam: false,
    }
}

/// Everything a scenario may do, each followed by a look at what came of it. Answered is what must be the same however the
/// account is reached.
async fn everything<E: Ec2>(account: &Account<E>) -> Vec<String> {
    let cloud = &account.cloud;
    let mut seen = vec![format!("{:?}", cloud.stage)];
    cloud.have_queue(false).await.unwrap();
    assert_eq!(cloud.queue_length().await.unwrap_err().to_string(), "there is no queue");
    seen.push(format!("{:#}", cloud.send_to_queue("lost").await.unwrap_err()));
    cloud.have_queue(true).await.unwrap();
    cloud.send_to_queue("{").await.unwrap();
    assert_eq!(cloud.queue_length().await.unwrap(), 1);

    assert!(cloud.admits(&cloud.stage.node_role_name).await.unwrap());
    cloud.admit_node_role(false).await.unwrap();
    assert!(!cloud.admits(&cloud.stage.node_role_name).await.unwrap());
    cloud.admit_node_role(true).await.unwrap();
    assert!(cloud.admits(&cloud.stage.node_role_name).await.unwrap());

    cloud.tag_subnets("a", "all").await.unwrap();
    cloud.tag_subnet_in("us-west-2b", "a", "one").await.unwrap();
    cloud.tag_security_group("b", "group").await.unwrap();
    let tags = |resources: Vec<Value>, key: &str| -> Vec<String> {
        resources.iter().filter_map(|one| Some(one["tags"][key].as_str()?.to_owned())).collect()
    };
    let mut of_subnets = tags(cloud.resources("subnets").await.unwrap(), "a");
    of_subnets.sort();
    assert_eq!(of_subnets, ["all", "all", "one"]);
    assert_eq!(tags(cloud.resources("securityGroups").await.unwrap(), "b"), ["group"]);
    assert!(cloud.tag_subnet_in("us-west-2z", "a", "b").await.unwrap_err().to_string().contains("us-west-2z"));

    let plain = cloud.launch(&BTreeMap::from([("Name".into(), "by hand".into())])).await.unwrap();
    let grouped = cloud.launch_in_node_group("workers").await.unwrap();
    assert!(cloud.admits("demo-workers-NodeInstanceRole").await.unwrap());
    let spot = [("InstanceMarketOptions.MarketType", "spot".to_owned())];
    cloud.exhaust("*", "*", "spot", true).await.unwrap();
    assert!(
        cloud
            .run_instance(cloud.subnet(0).unwrap(), &spot)
            .await
            .unwrap_err()
            .to_string()
            .contains("InsufficientInstanceCapacity")
    );
    cloud.exhaust("*", "*", "spot", false).await.unwrap();
    let bought = cloud.run_instance(cloud.subnet(0).unwrap(), &spot).await.unwrap();
    seen.push(format!("{:#}", cloud.interrupt(&plain).await.unwrap_err()));
    seen.push(format!("{:#}", cloud.interrupt("i-0").await.unwrap_err()));
    cloud.interrupt(&bought).await.unwrap();
    cloud.recommend_rebalance(&bought).await.unwrap();
    cloud.terminate(&plain).await.unwrap();
    cloud.impair(&grouped).await.unwrap();
    cloud.schedule_maintenance(&grouped, "instance-retirement").await.unwrap();
    seen.push(format!("{:#}", cloud.schedule_maintenance(&grouped, "party").await.unwrap_err()));

    let instances = cloud.instances().await.unwrap();
    let find = |id: &str| instances.iter().find(|instance| instance.id == id).unwrap();
    assert_eq!((find(&plain).state.as_str(), find(&plain).tags["Name"].as_str()), ("shutting-down", "by hand"));
    assert_eq!(find(&grouped).tags["aws:autoscaling:groupName"], "eks-workers");
    assert!(find(&grouped).user_data.contains("https://cluster.test:6443"), "{:?}", find(&grouped));
    assert_eq!(find(&grouped).role.as_deref(), Some("demo-workers-NodeInstanceRole"));
    // As published; two virtual CPUs and 8 GiB.
    assert_eq!((find(&grouped).usd_per_hour, find(&grouped).vcpus, find(&grouped).memory_mib), (Some(0.096), 2, 8192));
    assert!(find(&bought).spot && find(&bought).reclaim_at.is_some());
    let timeless = |mut instance: Instance| {
        instance.state_since = Timestamp::UNIX_EPOCH;
        instance.launched_at = Timestamp::UNIX_EPOCH;
        instance.reclaim_at = instance.reclaim_at.map(|_| Timestamp::UNIX_EPOCH);
        format!("{instance:?}")
    };
    seen.extend(instances.iter().cloned().map(timeless));
    let machines = cloud.machines().await.unwrap();
    assert_eq!(machines.len(), 2, "the one that is shutting down is no machine any more");
    assert!(machines.iter().all(|machine| !machine.running && machine.architecture == "amd64"));
    let whole = account.ec2.read("/instances").await.unwrap();
    let whole = whole["instances"].as_array().unwrap().iter().find(|one| one["id"] == *grouped).unwrap().clone();
    assert!(whole["systemImpairedSince"].is_string() && whole["scheduledEvents"][0]["code"] == "instance-retirement");
    assert!(account.ec2.instance_exists(&format!("aws:///us-west-2a/{grouped}")).await.unwrap());
    assert!(!account.ec2.instance_exists("aws:///us-west-2a/i-0").await.unwrap());

    cloud.release_images("20270101").await.unwrap();
    let images = cloud.resources("images").await.unwrap();
    let newest = "amazon-eks-node-al2023-x86_64-standard-1.36-v20270101";
    assert!(images.iter().any(|image| image["name"] == newest), "{images:?}");
    let template = [
        ("Action", "CreateLaunchTemplate".to_owned()),
        ("Version", "2016-11-15".into()),
        ("LaunchTemplateName", "mine".into()),
        ("LaunchTemplateData.InstanceType", "m5.large".into()),
    ];
    cloud.ask(&template).await.unwrap();
    assert_eq!(cloud.launch_templates().await.unwrap(), BTreeSet::from(["mine".to_owned()]));
    let role = "demo-workers-NodeInstanceRole".to_owned();
    assert_eq!(cloud.instance_profiles().await.unwrap(), BTreeMap::from([(role.clone(), Some(role))]));
    seen.push(format!("{:?}", cloud.spot_offers().await.unwrap()));

    cloud.deny("RunInstances").await.unwrap();
    let denied = cloud.launch(&BTreeMap::new()).await.unwrap_err().to_string();
    assert!(denied.contains("UnauthorizedOperation") && denied.contains("ec2:RunInstances"), "{denied}");
    let calls = cloud.calls().await.unwrap();
    let named = |name: &str| calls.iter().filter(|call| call.name == name).count();
    assert_eq!(
        (named("ec2:RunInstances"), named("ec2:TerminateInstances"), named("iam:CreateInstanceProfile")),
        (5, 1, 1)
    );
    seen.extend(calls.iter().map(|call| format!("{} {} {:?}", call.name, call.status, call.parameters)));
    seen
}

#[tokio::test]
async fn whatever_a_scenario_does_has_the_same_effect_over_http_as_in_process() {
    let served = Served::new().await;
    let remote = Account::reset(served.remote(), options()).await.unwrap();
    let over_http = everything(&remote).await;
    assert_eq!(everything(&Account::new(options())).await, over_http);
    // Whatever was done, the next account is as the first was.
    let again = Account::reset(served.remote(), options()).await.unwrap();
    assert_eq!(again.cloud.instances().await.unwrap(), []);
    assert_eq!(again.cloud.calls().await.unwrap().len(), 0);
    assert_eq!(everything(&again).await, over_http);
    drop(served.server);
}

#[tokio::test]
async fn a_follower_is_told_every_call_once_also_those_that_somebody_else_read() {
    let served = Served::new().await;
    served.describe(3).await;
    let remote = Account::reset(served.remote(), options()).await.unwrap();
    let told = Rc::new(std::cell::RefCell::new(Vec::new()));
    let telling = told.clone();
    let following = remote.ec2.follow_calls(move |entry| telling.borrow_mut().push(entry.sequence));
    let making = async {
        // More than one page, and more while the follower waits.
        served.describe(1_200).await;
        assert_eq!(remote.cloud.calls().await.unwrap().len(), 1_200);
        served.describe(1).await;
        while told.borrow().len() < 1_201 {
            tokio::task::yield_now().await;
        }
        served.describe(2).await;
        assert_eq!(remote.cloud.calls().await.unwrap().len(), 1_203);
        while told.borrow().len() < 1_203 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = following => panic!("{ended:?}"),
        made = tokio::time::timeout(Duration::from_secs(60), making) => made.unwrap(),
    }
    assert_eq!(*told.borrow(), (4..=1_206).collect::<Vec<u64>>());
    let last = remote.ec2.journal().await.unwrap().pop().unwrap();
    let inside = served.inside.cloud().journal().pop().unwrap();
    assert_eq!(format!("{last:?}"), format!("{inside:?}"));
}

#[tokio::test]
async fn a_change_of_an_instance_is_waited_for_and_seen() {
    let served = Served::new().await;
    let remote = Account::reset(served.remote(), options()).await.unwrap();
    remote.cloud.changed().await.unwrap();
    let no_tags = BTreeMap::new();
    let (changed, launched) = tokio::join!(
        tokio::time::timeout(Duration::from_secs(60), remote.cloud.changed()),
        remote.cloud.launch(&no_tags)
    );
    changed.unwrap().unwrap();
    assert_eq!(remote.cloud.machines().await.unwrap()[0].id, launched.unwrap());
}

#[tokio::test]
async fn a_fake_that_was_set_back_or_started_anew_under_its_reader_is_an_error() {
    let served = Served::new().await;
    let remote = Account::reset(served.remote(), options()).await.unwrap();
    served.describe(2).await;
    let second = Account::reset(served.remote(), options()).await.unwrap();
    let error = format!("{:#}", remote.cloud.calls().await.unwrap_err());
    assert!(error.contains("lost 2 calls after number 0"), "{error}");
    served.describe(1).await;
    assert_eq!(second.cloud.calls().await.unwrap().len(), 1);
    let other = Served::new().await;
    let moved = RemoteEc2::at(&other.url).unwrap().following(&second.ec2);
    let error = format!("{:#}", moved.journal().await.unwrap_err());
    assert!(error.contains("after is 3, and only 0 calls were made") && error.contains("expected 0 to 0"), "{error}");
}

#[tokio::test]
async fn an_account_that_cannot_be_had_is_told_with_its_address_and_field() {
    let served = Served::new().await;
    let refused = async |options: account::Options| {
        format!("{:#}", Account::reset(served.remote(), options).await.err().expect("this was to be refused"))
    };
    let error = refused(account::Options { families: vec!["m55".into()], ..options() }).await;
    assert!(
        error.contains("POST /reset") && error.contains("no instance family \"m55\"") && error.contains("m5, "),
        "{error}"
    );
    let error = refused(account::Options { region: "mars-1".into(), ..options() }).await;
    assert!(error.contains("\"mars-1\"") && error.contains("us-west-2"), "{error}");
    let error = refused(account::Options { served: Some(("http://a".into(), "!".into())), ..options() }).await;
    assert!(error.contains("https://"), "{error}");
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let nobody = RemoteEc2::at(&format!("http://127.0.0.1:{port}")).unwrap();
    let error = format!("{:#}", Account::reset(nobody, options()).await.err().expect("nobody listens"));
    assert!(error.contains(&format!("127.0.0.1:{port}")) && error.contains("refused"), "{error}");
}
