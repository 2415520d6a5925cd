//! The body of an answer, whole, or broken off in the middle of it by a fault.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// The connection ends here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an injected fault broke the connection")
    }
}

impl std::error::Error for Broken {}

/// A body that is announced whole.
pub(crate) struct Cut {
    sent: Full<Bytes>,
    announced: u64,
    end: End,
}

/// What follows the bytes that are sent.
enum End {
    Well,
    /// The break, but first a turn in which the server writes what it has: it drops what is unwritten when a body fails.
    BreakAfterWriting,
    Break,
}

impl Cut {
    pub(crate) fn whole(body: Bytes) -> Self {
        Self { announced: body.len() as u64, sent: Full::new(body), end: End::Well }
    }

    /// Sends the first half and breaks.
    pub(crate) fn half(body: Bytes) -> Self {
        let announced = body.len() as u64;
        Self { announced, sent: Full::new(body.slice(..body.len() / 2)), end: End::BreakAfterWriting }
    }
}

impl Body for Cut {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match Pin::new(&mut self.sent).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => return Poll::Ready(Some(Ok(frame))),
            Poll::Ready(Some(Err(never))) => match never {},
            Poll::Ready(None) => {}
            Poll::Pending => return Poll::Pending,
        }
        match self.end {
            End::Well => Poll::Ready(None),
            End::BreakAfterWriting => {
                self.end = End::Break;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            End::Break => Poll::Ready(Some(Err(Broken))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.end, End::Well) && self.sent.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.announced)
    }
}
