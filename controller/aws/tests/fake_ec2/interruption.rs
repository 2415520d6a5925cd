//! The queue, from the event to the deleted message.

use crate::support::{Scene, instance_id, node_claim, pass};
use controller_api::labels;
use controller_aws::{Interruption, InterruptionKind};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn a_spot_notice_arrives_names_its_instance_and_goes_when_deleted() {
    let scene = Scene::new().await;
    let class = scene.ready_class().await;
    let spot: &[(&str, &[&str])] = &[(labels::CAPACITY_TYPE_LABEL, &["spot"])];
    let claim = scene.create(&node_claim("n-1", spot), &class).await.unwrap();
    let mut background = tokio::task::JoinSet::new();
    let ec2 = scene.ec2.clone();
    background.spawn(async move { ec2.run().await });
    pass(30).await;
    while let Ok(messages) = scene.cloud.receive_interruptions().await {
        if messages.is_empty() {
            break;
        }
        for message in messages {
            assert_eq!(message.interruption, Interruption::Nothing, "pending and running concern nobody: {message:?}");
            scene.cloud.delete_message(&message).await.unwrap();
        }
    }
    scene.ec2.cloud().interrupt(instance_id(&claim)).unwrap();
    let messages = scene.cloud.receive_interruptions().await.unwrap();
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].interruption, Interruption::Event(InterruptionKind::SpotInterrupted));
    assert_eq!(messages[0].instance_ids, [instance_id(&claim)]);
    assert!(messages[0].sent_at.is_some() && messages[0].event_time.is_some());
    scene.cloud.delete_message(&messages[0]).await.unwrap();
    let counts = scene.ec2.cloud().queue_counts("demo").unwrap();
    assert_eq!(counts.0 + counts.1, 0, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_receive_waits_twenty_seconds_and_a_message_not_deleted_comes_again() {
    let scene = Scene::new().await;
    let started = Instant::now();
    assert!(scene.cloud.receive_interruptions().await.unwrap().is_empty());
    assert_eq!(started.elapsed().as_secs(), 20);
    scene.ec2.cloud().send_raw_message("demo", "not json").unwrap();
    let first = scene.cloud.receive_interruptions().await.unwrap();
    assert!(matches!(first[0].interruption, Interruption::Malformed(_)));
    let started = Instant::now();
    let again = scene.cloud.receive_interruptions().await.unwrap();
    assert_eq!(again.len(), 1);
    assert!(started.elapsed().as_secs() >= 19, "{:?}", started.elapsed());
    scene.cloud.delete_message(&again[0]).await.unwrap();
    assert!(scene.cloud.receive_interruptions().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_appears_later_is_found() {
    let scene = Scene::with(|settings| settings.interruption_queue = Some("late".to_owned())).await;
    assert!(scene.cloud.receive_interruptions().await.unwrap_err().is_not_found());
    scene.ec2.cloud().add_queue("late");
    scene.ec2.cloud().send_raw_message("late", "{}").unwrap();
    assert_eq!(scene.cloud.receive_interruptions().await.unwrap()[0].interruption, Interruption::Nothing);
    let none = Scene::with(|settings| settings.interruption_queue = None).await;
    assert!(!none.cloud.has_interruption_queue());
    assert!(none.cloud.receive_interruptions().await.unwrap().is_empty());
}
