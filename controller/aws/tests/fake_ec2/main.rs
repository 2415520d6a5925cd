//! The provider against fake-ec2, through the real SDK and in virtual time.

mod instances;
mod interruption;
mod launch;
mod node_class;
mod start;
mod support;
