//! fake-ec2 in this process: what is asked for often is read without a detour over JSON.

use super::{Ec2, Instance};
use bytes::Bytes;
use fake_ec2::{CapacityType, FakeEc2, JournalEntry, WholeInstance};
use http::{Request, Response};
use std::sync::Arc;

impl Ec2 for FakeEc2 {
    async fn aws(&self, request: Request<Bytes>) -> anyhow::Result<Response<Bytes>> {
        Ok(self.handle(request).await)
    }

    async fn control(&self, request: Request<Bytes>) -> anyhow::Result<Response<Bytes>> {
        Ok(FakeEc2::control(self, request).await)
    }

    async fn instances(&self) -> anyhow::Result<Vec<Instance>> {
        Ok(self.cloud().whole_instances().into_iter().map(Instance::from).collect())
    }

    async fn instances_changed(&self, seen: u64) -> anyhow::Result<u64> {
        Ok(self.cloud().instances_changed(seen).await)
    }

    async fn journal(&self) -> anyhow::Result<Vec<Arc<JournalEntry>>> {
        Ok(self.cloud().journal())
    }
}

impl From<WholeInstance> for Instance {
    fn from(WholeInstance { instance, image_name, memory_mib, role, usd_per_hour }: WholeInstance) -> Self {
        Self {
            image_name: image_name.unwrap_or_default(),
            security_groups: instance.security_groups.iter().map(|(_, name)| name.clone()).collect(),
            instance_type: instance.instance_type.to_owned(),
            state: instance.state.name().to_owned(),
            state_since: instance.state_since,
            state_reason: instance.state_reason.as_ref().map(|(code, _)| code.clone()),
            spot: instance.capacity_type == CapacityType::Spot,
            launched_at: instance.launched_at,
            reclaim_at: instance.reclaim_at,
            usd_per_hour,
            vcpus: instance.vcpus,
            memory_mib: memory_mib.unwrap_or_default(),
            private_ip: instance.private_ip.to_string(),
            user_data: instance.user_data_text().unwrap_or_default(),
            role,
            id: instance.id,
            image_id: instance.image_id,
            zone: instance.zone,
            subnet: instance.subnet_id,
            tags: instance.tags,
            architecture: instance.architecture,
            zone_id: instance.zone_id,
            private_dns_name: instance.private_dns_name,
        }
    }
}
