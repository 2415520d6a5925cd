//! Dead letters: where they go while a queue is received from, and the tasks that bring them back.

use super::{Queue, Request, Taken};
use crate::cloud::{Cloud, Due, after};
use crate::error::ApiError;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How many messages a task moves each second if nobody says so.
// fidelity: documented(SQS API Reference, StartMessageMoveTask: at most 500 messages per second); assumed: a task that is not
// told its rate moves as many
const MOVED_PER_SECOND: usize = 500;
/// Tasks of one queue that are remembered.
// fidelity: documented(SQS API Reference, ListMessageMoveTasks: the ten most recent)
const TASKS_KEPT: usize = 10;

/// Moves the messages of a dead-letter queue, some each second.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MoveTask {
    pub(crate) id: String,
    pub(crate) source: String,
    /// The queue everything goes to; without one, each message goes back to where it came from.
    pub(crate) destination: Option<String>,
    pub(crate) per_second: Option<usize>,
    pub(crate) moved: usize,
    pub(crate) to_move: usize,
    pub(crate) started_at: Timestamp,
    pub(crate) state: MoveState,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum MoveState {
    Running,
    Completed,
    Cancelled,
    /// And why.
    Failed(String),
}

impl MoveState {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Completed => "COMPLETED",
            Self::Cancelled => "CANCELLED",
            Self::Failed(_) => "FAILED",
        }
    }
}

impl Cloud {
    /// Receives from a queue; what was received too often goes to its dead-letter queue instead.
    // fidelity: documented(SQS API Reference, CreateQueue: RedrivePolicy); assumed: where the dead-letter queue is gone,
    // messages go on being received
    pub(crate) fn receive(&mut self, now: Timestamp, name: &str, mut request: Request<'_>) -> Result<Taken, ApiError> {
        let queue = self.queues.get_mut(name).ok_or_else(no_queue)?;
        let Some(policy) = queue.settings.redrive.clone() else { return queue.receive(now, &request) };
        let Some(target) = self.queue_of(&policy.dead_letter_target_arn) else {
            return self.queues.get_mut(name).ok_or_else(no_queue)?.receive(now, &request);
        };
        request.max_receive_count = Some(policy.max_receive_count);
        let mut taken = self.queues.get_mut(name).ok_or_else(no_queue)?.receive(now, &request)?;
        if !taken.dead.is_empty() {
            let arn = self.arn("sqs", name);
            let target = self.queues.get_mut(&target).ok_or_else(no_queue)?;
            taken.dead.drain(..).for_each(|message| target.bury(now, message, &arn));
            self.revision += 1;
        }
        Ok(taken)
    }

    /// The name of the queue with this ARN, if it is there.
    pub(crate) fn queue_of(&self, arn: &str) -> Option<String> {
        let name = arn.rsplit(':').next()?;
        (self.queues.contains_key(name) && self.arn("sqs", name) == arn).then(|| name.to_owned())
    }

    /// The names of the queues whose dead letters go to this one.
    pub(crate) fn dead_letter_sources(&self, name: &str) -> impl Iterator<Item = &String> {
        let arn = self.arn("sqs", name);
        let sends = move |queue: &Queue| {
            queue.settings.redrive.as_ref().is_some_and(|policy| policy.dead_letter_target_arn == arn)
        };
        self.queues.iter().filter(move |(_, queue)| sends(queue)).map(|(name, _)| name)
    }

    /// Starts moving the messages of a dead-letter queue; the task's id is answered.
    pub(crate) fn start_move(
        &mut self,
        now: Timestamp,
        source: &str,
        destination: Option<String>,
        per_second: Option<usize>,
    ) -> String {
        let to_move = self.queues.get_mut(source).map_or(0, |queue| queue.counts(now).0);
        let id = self.ids.uuid();
        let (source, state) = (source.to_owned(), MoveState::Running);
        let own = self.move_tasks.iter().filter(|task| task.source == source).count();
        if own >= TASKS_KEPT {
            let oldest = self.move_tasks.iter().position(|task| task.source == source);
            oldest.map(|index| self.move_tasks.remove(index));
        }
        let started_at = now;
        let task = MoveTask { id: id.clone(), source, destination, per_second, moved: 0, to_move, started_at, state };
        self.move_tasks.push(task);
        self.schedule(now, Due::MoveMessages { task: id.clone() });
        id
    }

    /// Moves what a task moves within one second.
    pub(crate) fn move_messages(&mut self, at: Timestamp, id: &str) {
        let Some(index) = self.move_tasks.iter().position(|task| task.id == id) else { return };
        let mut task = self.move_tasks[index].clone();
        if task.state != MoveState::Running {
            return;
        }
        for _ in 0..task.per_second.unwrap_or(MOVED_PER_SECOND) {
            match self.move_one(at, &task) {
                Ok(true) => task.moved += 1,
                Ok(false) => task.state = MoveState::Completed,
                Err(reason) => task.state = MoveState::Failed(reason.into()),
            }
            if task.state != MoveState::Running {
                break;
            }
        }
        self.revision += 1;
        if task.state == MoveState::Running {
            self.schedule(after(at, Duration::from_secs(1)), Due::MoveMessages { task: id.to_owned() });
        }
        self.move_tasks[index] = task;
    }

    /// Moves the next message; false if there is none.
    // fidelity: assumed: the words of a failure; a message that cannot be moved stays where it is
    fn move_one(&mut self, at: Timestamp, task: &MoveTask) -> Result<bool, &'static str> {
        const MISSING: &str = "AWS.SimpleQueueService.NonExistentQueue";
        let source = self.queues.get_mut(&task.source).ok_or(MISSING)?;
        let Some(next) = source.peek(at) else { return Ok(false) };
        let destination = match &task.destination {
            Some(name) => Some(name.clone()),
            None => {
                let origin = next.extras().and_then(|extras| extras.dead_letter_source.clone());
                self.queue_of(&origin.ok_or("CouldNotDetermineMessageSource")?)
            }
        };
        let destination = destination.filter(|name| self.queues.contains_key(name)).ok_or(MISSING)?;
        let message = self.queues.get_mut(&task.source).and_then(|source| source.take_out(at));
        if let (Some(message), Some(queue)) = (message, self.queues.get_mut(&destination)) {
            queue.take_back(at, &mut self.ids, message);
        }
        Ok(true)
    }
}

pub(crate) fn no_queue() -> ApiError {
    ApiError::client("QueueDoesNotExist", "The specified queue does not exist.")
}
