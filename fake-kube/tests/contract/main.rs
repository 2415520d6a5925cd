//! What the API server promises, asked over HTTP as clients ask. Expected answers are those of the genuine server.

// The definition of the widgets is one long literal.
#![recursion_limit = "512"]

mod apply;
mod collector;
mod custom;
mod devices;
mod disturbance;
mod eviction;
mod karpenter;
mod kit;
mod objects;
mod patches;
mod people;
mod pods;
mod reading;
mod tables;
mod watching;
