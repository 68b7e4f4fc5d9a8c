//! The log medium: against a plain list, through every crash of small histories, against damage, on a real file.

mod crash;
mod damage;
mod file;
mod logged;
mod model;
mod support;
