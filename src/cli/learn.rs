//! `netbox learn`.

use clap::Args;

use super::RunArguments;

#[derive(Args, Debug)]
pub struct LearnArguments {
    /// Write the rules without asking
    ///
    /// Without it, and without a terminal to ask at, nothing is written.
    #[arg(short, long)]
    pub yes: bool,

    #[command(flatten)]
    pub run: RunArguments,
}
