//! A body as it was meant: out of the chunks that some clients sign one by one, and unpacked.

use super::{MAX_BODY_BYTES, header};
use crate::error::ApiError;
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::HeaderMap;
use std::io::Read;

/// Takes off what `Content-Encoding` names. Unpacked, too, a body has to fit.
// fidelity: documented(Smithy, requestCompression trait: gzip); assumed: the codes of what cannot be unpacked
pub(super) fn decoded(headers: &HeaderMap, body: &Bytes) -> Result<Bytes, ApiError> {
    let named = header(headers, "content-encoding").unwrap_or_default();
    let mut encodings: Vec<String> = named.split(',').map(|name| name.trim().to_ascii_lowercase()).collect();
    let streaming = header(headers, "x-amz-content-sha256").is_some_and(|hash| hash.starts_with("STREAMING-"));
    if streaming && !encodings.iter().any(|name| name == "aws-chunked") {
        encodings.push("aws-chunked".into());
    }
    // `aws-chunked` is what was put around everything else, wherever it is named.
    encodings.sort_by_key(|name| name != "aws-chunked");
    let mut body = body.clone();
    for encoding in encodings {
        body = match encoding.as_str() {
            "" | "identity" => body,
            "gzip" | "x-gzip" => unpacked(&body)?,
            "aws-chunked" => joined(&body)?,
            other => {
                let message = format!("The Content-Encoding {other} is not supported; send gzip or none.");
                return Err(ApiError::new(415, "UnsupportedMediaType", message));
            }
        };
    }
    Ok(body)
}

fn unpacked(body: &[u8]) -> Result<Bytes, ApiError> {
    let mut whole = Vec::new();
    // One byte more than allowed tells too much from just enough.
    GzDecoder::new(body).take(MAX_BODY_BYTES as u64 + 1).read_to_end(&mut whole).map_err(|_| {
        ApiError::client("InvalidRequest", "The request body is not the gzip that Content-Encoding names.")
    })?;
    match whole.len() > MAX_BODY_BYTES {
        true => Err(too_large()),
        false => Ok(whole.into()),
    }
}

pub(super) fn too_large() -> ApiError {
    let message = format!("The request body is too large; at most {MAX_BODY_BYTES} bytes are read.");
    ApiError::new(413, "RequestEntityTooLarge", message)
}

/// Chunks of `SIZE;chunk-signature=…\r\nDATA\r\n`, up to one of size 0 and what trails it.
// fidelity: documented(Amazon S3 User Guide, Signature Calculations: Transferring Payload in Multiple Chunks)
fn joined(body: &[u8]) -> Result<Bytes, ApiError> {
    let broken = || ApiError::client("IncompleteBody", "The request body is not in the chunks of aws-chunked.");
    let (mut whole, mut rest) = (Vec::with_capacity(body.len()), body);
    loop {
        let end = rest.windows(2).take(1024).position(|pair| pair == b"\r\n").ok_or_else(broken)?;
        let head = std::str::from_utf8(&rest[..end]).map_err(|_| broken())?;
        let size = head.split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size.trim(), 16).map_err(|_| broken())?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Ok(whole.into());
        }
        let (data, more) = rest.split_at_checked(size).ok_or_else(broken)?;
        whole.extend_from_slice(data);
        rest = more.strip_prefix(b"\r\n").ok_or_else(broken)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn headers(encoding: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::header::CONTENT_ENCODING, encoding.parse().unwrap())])
    }

    fn packed(bytes: &[u8]) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap().into()
    }

    #[test]
    fn gzip_is_unpacked_and_bounded_afterwards() {
        assert_eq!(decoded(&headers("gzip"), &packed(b"Action=X")).unwrap(), "Action=X");
        let most = vec![b'x'; MAX_BODY_BYTES];
        assert_eq!(decoded(&headers("gzip"), &packed(&most)).unwrap().len(), MAX_BODY_BYTES);
        let bomb = packed(&vec![0; MAX_BODY_BYTES + 1]);
        assert!(bomb.len() < 100_000);
        assert_eq!(decoded(&headers("gzip"), &bomb).unwrap_err().status, 413);
        for broken in [&packed(b"Action=X")[..10], b"Action=X"] {
            assert_eq!(decoded(&headers("gzip"), &Bytes::copy_from_slice(broken)).unwrap_err().status, 400);
        }
        assert_eq!(decoded(&headers("br"), &Bytes::new()).unwrap_err().status, 415);
    }

    #[test]
    fn chunks_are_joined() {
        let body = Bytes::from_static(b"6;chunk-signature=ab\r\nAction\r\n2\r\n=X\r\n0;chunk-signature=cd\r\n\r\n");
        assert_eq!(decoded(&headers("aws-chunked"), &body).unwrap(), "Action=X");
        for broken in ["", "6\r\nAct", "x\r\n", "2\r\nabc\r\n0\r\n\r\n", "ffffffffffffffff\r\na", "2\r\nab\r\n"] {
            let error = decoded(&headers("aws-chunked"), &Bytes::from(broken)).unwrap_err();
            assert_eq!(error.code, "IncompleteBody", "{broken:?}");
        }
    }
}
