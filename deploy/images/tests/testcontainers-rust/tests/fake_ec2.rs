//! The example of fake-ec2's README for testcontainers in Rust, with the smallest of HTTP clients in place of the SDK.

use testcontainers::core::{IntoContainerPort as _, WaitFor};
use testcontainers::runners::SyncRunner as _;
use testcontainers::{GenericImage, ImageExt as _};

#[test]
fn a_cloud_of_its_own_for_each_test() {
    let fake_ec2 = GenericImage::new("ghcr.io/trysquare/fake-ec2", "0.1.0")
        .with_exposed_port(4566.tcp())
        .with_wait_for(WaitFor::message_on_stdout("export AWS_ENDPOINT_URL="))
        .with_cmd(["--bootstrap", "demo"])
        .start()
        .expect("Docker runs, and `make images` made the image");
    let port = fake_ec2.get_host_port_ipv4(4566).expect("the port is published");

    let request =
        "Action=DescribeSubnets&Version=2016-11-15&Filter.1.Name=tag:karpenter.sh/discovery&Filter.1.Value.1=demo";
    let answer = ureq::post(format!("http://127.0.0.1:{port}/"))
        .header("Content-Type", "application/x-www-form-urlencoded")
        .header("Authorization", "AWS4-HMAC-SHA256 Credential=any/20260101/us-west-2/ec2/aws4_request")
        .send(request)
        .expect("it answers")
        .body_mut()
        .read_to_string()
        .expect("the answer is text");
    assert_eq!(answer.matches("<subnetId>").count(), 3, "{answer}");
}
