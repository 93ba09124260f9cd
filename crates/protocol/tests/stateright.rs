//! All that can happen at a small size, and what each rule is for. `PLEAT_STATES=large` goes through more.
#![forbid(unsafe_code)]

use pleat_protocol::program::Op;
use pleat_protocol::{Protocol, Rule};
use stateright::{Checker, HasDiscoveries, Model};

const ALL: &[Op] = &[Op::Read, Op::Write, Op::Discard, Op::Unmap, Op::Map, Op::Move];

/// Two threads that change the layout.
const LAYOUT: Protocol = Protocol { threads: [(ALL, 2), (ALL, 1)], evictions: 1, write_backs: 0, broken: None };
/// One that forks, and one that changes the layout.
const FORKS: Protocol = Protocol { threads: [(&[Op::Fork], 1), (ALL, 2)], evictions: 1, write_backs: 1, broken: None };

fn is_large() -> bool {
    std::env::var_os("PLEAT_STATES").is_some_and(|size| size == "large")
}

/// Goes through all states. Says the shortest way to one in which a property does not hold.
fn explore(protocol: Protocol) {
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    assert!(checker.is_done() && checker.unique_state_count() > 100_000);
    for property in ["a page holds what was written last", "a child is what was forked", "nobody waits for ever"] {
        let wrong = checker.discovery(property).map(stateright::Path::into_actions);
        assert!(wrong.is_none(), "{property}: not after {wrong:?}");
    }
    let is_forked = checker.model().threads.iter().any(|(ops, _)| ops.contains(&Op::Fork));
    checker.assert_any_discovery(if is_forked { "a child takes over" } else { "messages are held back" });
}

#[test]
fn two_threads_change_the_layout() {
    if is_large() {
        explore(Protocol { threads: [(ALL, 2), (ALL, 2)], ..LAYOUT });
        explore(Protocol { write_backs: 1, ..LAYOUT });
    }
    explore(LAYOUT);
}

#[test]
fn one_forks_and_one_changes_the_layout() {
    if is_large() {
        explore(FORKS);
        explore(Protocol { evictions: 2, write_backs: 2, ..FORKS });
    }
    explore(Protocol { write_backs: 0, ..FORKS });
}

/// A run that goes wrong without the rule.
fn needs(rule: Rule) -> Protocol {
    use Op::{Discard, Map, Move, Read, Unmap, Write};
    let begins = match rule {
        Rule::MovesGoThroughTheProgramsOwn
        | Rule::TheServerReads
        | Rule::ResidentIsAskedUnderTheLock
        | Rule::WhatIsThereMayGo
        | Rule::PublishAsks
        | Rule::TheDoubtfulIsHeldBack => LAYOUT,
        Rule::TheServerIsPatient => Protocol { threads: [(&[Move], 2), (&[Unmap, Read], 2)], ..LAYOUT },
        Rule::TheRegisteredIsDoubtfulToo => Protocol { threads: [(&[Map, Unmap], 2), (&[Move, Read], 2)], ..LAYOUT },
        Rule::TheDiscardedIsNotAdopted => {
            Protocol { threads: [(&[Map, Write, Discard, Read], 4), (&[Discard], 1)], ..LAYOUT }
        }
        Rule::AFrozenStateStays
        | Rule::TheForkIsPlaced
        | Rule::WhatIsReadLaterIsNotShared
        | Rule::SegmentsArePinned => FORKS,
    };
    Protocol { broken: Some(rule), ..begins }
}

#[test]
fn no_rule_can_be_left_out() {
    for rule in Rule::ALL {
        let checker = needs(rule).checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let wrong = checker.discoveries().into_values().next();
        println!(
            "{rule:?}: {} states, {:?}",
            checker.unique_state_count(),
            wrong.map(|path| path.into_actions().len())
        );
        let is_found = ["a page holds what was written last", "a child is what was forked", "nobody waits for ever"];
        assert!(is_found.iter().any(|property| checker.discovery(property).is_some()), "{rule:?}");
    }
}
