//! A refusal in the words of each protocol (aws spec §2.2).

use super::{Protocol, content_type, xml};
use crate::error::ApiError;
use bytes::Bytes;
use http::Response;

// fidelity: documented(Amazon EC2 API Reference, Error codes; AWS JSON and query protocol pages of the Smithy docs)
pub(crate) fn respond(protocol: Protocol, request_id: &str, error: &ApiError) -> Response<Bytes> {
    let (code, message) = (&error.code, &error.message);
    let mut response = Response::builder()
        .status(error.status)
        .header("content-type", content_type(protocol))
        .header("x-amzn-requestid", request_id);
    let body = match protocol {
        Protocol::Ec2Query => format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>{}</Message>\
             </Error></Errors><RequestID>{request_id}</RequestID></Response>",
            escaped(message)
        ),
        Protocol::Query => format!(
            "<ErrorResponse><Error><Type>{}</Type><Code>{code}</Code><Message>{}</Message></Error><RequestId>{request_id}\
             </RequestId></ErrorResponse>",
            fault(error),
            escaped(message)
        ),
        Protocol::Json10 => {
            // SQS names errors twice: the modelled type, and the code of its older query protocol in a header.
            response = response.header("x-amzn-query-error", format!("{};{}", query_code(code), fault(error)));
            serde_json::json!({"__type": format!("com.amazonaws.sqs#{code}"), "message": message}).to_string()
        }
        Protocol::Json11 => serde_json::json!({"__type": code, "message": message}).to_string(),
        Protocol::Rest => {
            response = response.header("x-amzn-errortype", code.as_ref());
            serde_json::json!({"message": message}).to_string()
        }
    };
    // The journal reads the code from here, whatever the protocol.
    response.extension(error.clone()).body(Bytes::from(body)).unwrap_or_else(|_| {
        // Only an injected code or status can be unfit for a header.
        let mut fallback = Response::new(Bytes::new());
        *fallback.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        fallback
    })
}

/// Whose fault it is.
fn fault(error: &ApiError) -> &'static str {
    if error.status < 500 { "Sender" } else { "Receiver" }
}

/// What SQS's older query protocol calls an error.
// fidelity: documented(the model of SQS in the AWS SDKs: awsQueryError of each error)
pub(crate) fn query_code(code: &str) -> &str {
    match code {
        "BatchEntryIdsNotDistinct" => "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
        "BatchRequestTooLong" => "AWS.SimpleQueueService.BatchRequestTooLong",
        "EmptyBatchRequest" => "AWS.SimpleQueueService.EmptyBatchRequest",
        "InvalidBatchEntryId" => "AWS.SimpleQueueService.InvalidBatchEntryId",
        "MessageNotInflight" => "AWS.SimpleQueueService.MessageNotInflight",
        "PurgeQueueInProgress" => "AWS.SimpleQueueService.PurgeQueueInProgress",
        "QueueDeletedRecently" => "AWS.SimpleQueueService.QueueDeletedRecently",
        "QueueDoesNotExist" => "AWS.SimpleQueueService.NonExistentQueue",
        "QueueNameExists" => "QueueAlreadyExists",
        "TooManyEntriesInBatchRequest" => "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
        "UnsupportedOperation" => "AWS.SimpleQueueService.UnsupportedOperation",
        other => other,
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    xml::escape(&mut out, text);
    out
}
