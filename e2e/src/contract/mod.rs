//! fake-kube compared with a genuine API server: the same requests to both, and the same pods and nodes before both
//! schedulers. What differs is fixed, or listed with its reason.

pub mod definitions;

/// A server that takes part in the comparison.
#[derive(Clone)]
pub struct Server {
    /// What it is called in results, such as `fake-kube` or `kube-apiserver v1.36.3`.
    pub name: String,
    /// A client of it that may do everything.
    pub client: kube::Client,
}

/// What one part of the comparison found.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// What was compared: `sequences`, `definitions` or `scheduler`.
    pub name: &'static str,
    /// How many cases were compared.
    pub cases: usize,
    /// Where the servers differ.
    pub differences: Vec<Difference>,
}

/// A case in which two servers differ.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The case, by the name it has in its file.
    pub case: String,
    /// Where in the answer, and both values.
    pub found: String,
    /// Why this is accepted; none: it is a fault.
    pub reason: Option<String>,
}
