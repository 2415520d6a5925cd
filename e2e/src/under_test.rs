//! The controller under test: ours, upstream's, none at all, or any program that takes Karpenter's environment.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Which controller the scenarios are about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnderTest {
    /// This project's.
    Ours,
    /// Upstream Karpenter of the release in `tools/versions`.
    Upstream,
    /// One that does nothing: the control that scenarios notice it.
    Nothing,
    /// A program on this machine.
    Program(PathBuf),
}

impl UnderTest {
    /// The controller that takes its place, and whose place it takes.
    #[must_use]
    pub fn other(&self) -> Self {
        match self {
            Self::Ours | Self::Program(_) => Self::Upstream,
            Self::Upstream => Self::Ours,
            Self::Nothing => Self::Nothing,
        }
    }
}

impl FromStr for UnderTest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "ours" => Ok(Self::Ours),
            "upstream" => Ok(Self::Upstream),
            "nothing" => Ok(Self::Nothing),
            path if path.contains('/') => Ok(Self::Program(path.into())),
            other => Err(format!(
                "{other:?} is no controller: ours, upstream, nothing, or a path with a slash, such as ./{other}"
            )),
        }
    }
}

impl fmt::Display for UnderTest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours => formatter.write_str("ours"),
            Self::Upstream => formatter.write_str("upstream"),
            Self::Nothing => formatter.write_str("nothing"),
            Self::Program(path) => write!(formatter, "{}", path.display()),
        }
    }
}
