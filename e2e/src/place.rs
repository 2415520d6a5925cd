//! A cluster that is there before a scenario and after it: made once for many scenarios, set back between them, and told to
//! the process of each.

use crate::control_plane::{self, ControlPlane, Definitions, Programs};
use crate::kind::{self, Clusters};
use crate::release::Release;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// All that the process of a scenario needs to know of its cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Place {
    /// A control plane of child processes.
    ControlPlane {
        /// How to reach it.
        access: control_plane::Access,
        /// The environment of the controller, as the chart sets it.
        environment: BTreeMap<String, String>,
    },
    /// A kind cluster, with fake-ec2 in it.
    Kind(kind::Access),
}

impl Place {
    /// The logs of its parts.
    pub(crate) fn logs(&self) -> Vec<PathBuf> {
        match self {
            Self::ControlPlane { access, .. } => access.logs(),
            Self::Kind(access) => access.logs(),
        }
    }
}

/// What places are made of.
#[derive(Clone, Debug)]
pub enum Places {
    /// Control planes of child processes.
    ControlPlanes(ControlPlanes),
    /// Clusters of containers.
    Kind(Clusters),
}

/// What control planes are made of.
#[derive(Clone, Debug)]
pub struct ControlPlanes {
    /// The programs.
    pub programs: Programs,
    /// The definitions that are installed in each.
    pub definitions: Definitions,
    /// The controller as the chart would install it.
    pub release: Release,
    /// The folder of their files.
    pub folder: PathBuf,
}

/// A place that is used by one scenario after the other.
pub(crate) struct Seat<'a> {
    of: &'a Places,
    /// Which of several it is, from 1.
    number: usize,
    runtime: tokio::runtime::Runtime,
    made: Option<Made>,
}

enum Made {
    ControlPlane(Box<ControlPlane>),
    Kind(Box<kind::Cluster>),
}

impl<'a> Seat<'a> {
    pub(crate) fn new(of: &'a Places, number: usize) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { of, number, runtime, made: None })
    }

    /// A place as new.
    pub(crate) fn ready(&mut self) -> anyhow::Result<Place> {
        let set_back = match &mut self.made {
            None => Ok(()),
            Some(Made::ControlPlane(used)) => self.runtime.block_on(used.reset()),
            Some(Made::Kind(used)) => self.runtime.block_on(used.reset()),
        };
        if set_back.is_err() {
            // Whatever it cannot forget goes with it.
            if let Some(Made::Kind(cluster)) = &mut self.made {
                cluster.spoil();
            }
            self.made = None;
        }
        if self.made.is_none() {
            self.made = Some(self.runtime.block_on(make(self.of, self.number))?);
        }
        self.place().context("it was just made")
    }

    fn place(&self) -> Option<Place> {
        Some(match (self.made.as_ref()?, self.of) {
            (Made::Kind(cluster), _) => Place::Kind(cluster.access().clone()),
            (Made::ControlPlane(plane), Places::ControlPlanes(of)) => {
                let environment = of.release.environment().ok()?;
                Place::ControlPlane { access: plane.access().clone(), environment }
            }
            (Made::ControlPlane(_), Places::Kind(_)) => return None,
        })
    }
}

async fn make(of: &Places, number: usize) -> anyhow::Result<Made> {
    Ok(match of {
        Places::ControlPlanes(of) => {
            let mut plane = ControlPlane::start(&of.programs, &of.folder, &of.definitions, None).await?;
            plane.authorise(&of.release).await?;
            Made::ControlPlane(Box::new(plane))
        }
        Places::Kind(of) => Made::Kind(Box::new(kind::Cluster::start(of, number).await?)),
    })
}
