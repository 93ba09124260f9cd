//! The protocol by which pages leave a program and come back, as states that stateright goes through: all that can happen
//! between two threads of a program, the kernel, the agent, and a forked child, at a size of some pages.
//!
//! It is the protocol as docs/userfaultfd.md tells it, once more and on purpose: one step is one hold of the pager's lock, one call to the
//! kernel, or one step of a thread. What the code makes of it is explored by `pager`'s tests/exhaustive.rs on the code itself
//! ([decision 17](../../../docs/decisions/0017-the-model-is-the-code.md)); here every order of the steps is gone through, not those with a
//! few turns only, and each [`Rule`] can be left out to see what it is for.
//!
//! ```text
//!  program   threads: read, write, discard, unmap, map, move, fork      kernel    mappings, present pages, messages
//!  agent     server, reclaimer, scan, writer                            table     what it knows of each page
//!  window    messages told late                                         journal   what happens during a fork
//! ```
#![forbid(unsafe_code)]

pub mod agent;
pub mod journal;
pub mod kernel;
pub mod program;
pub mod rules;
pub mod table;
pub mod window;

use agent::{Agent, Reach, Reclaim};
use journal::Journal;
use kernel::{Mapping, Memory, Message};
use program::{Expected, Op, Program, Thread};
pub use rules::Rule;
use stateright::{Model, Property};
use table::{Frame, Place, Segment, Table};

/// A page's index.
pub type Page = usize;
/// What a page holds; 0 is zeros.
pub type Value = u8;
/// Addresses of a page each.
pub const PAGES: usize = 3;
/// Threads of the program.
pub const THREADS: usize = 2;
/// Frames of the ring.
pub const FRAMES: usize = 2;
/// Segments of the swap file.
pub const SEGMENTS: usize = 2;

/// What is gone through.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// What each thread may do, and how often.
    pub threads: [(&'static [Op], u8); THREADS],
    /// How often a page is moved out.
    pub evictions: u8,
    /// How often one is written back.
    pub write_backs: u8,
    /// The rule that is left out.
    pub broken: Option<Rule>,
}

/// A forked process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Child {
    memory: Memory,
    expected: [Option<Expected>; PAGES],
    /// The state as it was copied, until its own agent has taken over.
    copied: Table,
    /// Messages that had been read when it was copied.
    read: u8,
    agent: Option<Agent>,
}

/// Everything.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    program: Program,
    memory: Memory,
    agent: Agent,
    medium: [Value; SEGMENTS],
    /// Faults that have been told of and not looked at.
    asked: [bool; PAGES],
    child: Option<Child>,
    evictions: u8,
    write_backs: u8,
    /// What has gone wrong.
    wrong: Option<&'static str>,
}

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// A thread begins something.
    Begin {
        /// Which.
        thread: usize,
        /// What.
        op: Op,
        /// Where.
        page: Page,
        /// Where it moves.
        to: Page,
    },
    /// A thread goes on.
    Run(usize),
    /// The oldest message is read, and followed or held back.
    Read,
    /// What is held back is followed.
    Sort,
    /// The server looks a page up.
    LookUp(Page),
    /// Puts it in place.
    Fill,
    /// Notes it.
    Note,
    /// The reclaimer, the scan or the writer.
    Reclaim(Reclaim),
    /// The state is frozen for a fork.
    Freeze,
    /// The child's agent takes over, and the state thaws.
    HandOver,
}

impl Protocol {
    fn reach<'a>(&self, world: &'a mut World) -> (&'a mut Agent, &'a mut Program, Reach<'a>) {
        let World { program, memory, agent, medium, .. } = world;
        (agent, program, Reach { memory, medium, broken: self.broken })
    }

    fn begins(&self, world: &World, steps: &mut Vec<Step>) {
        for (thread, (ops, _)) in self.threads.iter().enumerate() {
            if world.program.threads[thread] != Thread::Idle || world.program.left[thread] == 0 {
                continue;
            }
            for (op, page) in ops.iter().flat_map(|op| (0..PAGES).map(move |page| (*op, page))) {
                if op == Op::Fork && world.child.is_some() || !world.program.may_begin(thread, op, page) {
                    continue;
                }
                let is_target = |to: &Page| *to != page && world.program.may_begin(thread, Op::Map, *to);
                let targets: Vec<Page> =
                    if op == Op::Move { (0..PAGES).filter(is_target).collect() } else { vec![page] };
                steps.extend(targets.into_iter().map(|to| Step::Begin { thread, op, page, to }));
            }
        }
    }

    fn agents(&self, world: &World, steps: &mut Vec<Step>) {
        let mut copy = world.clone();
        let (agent, _, reach) = self.reach(&mut copy);
        let is_late = world.program.threads.iter().any(Thread::is_late);
        let forks = |doing: Thread| world.program.threads.contains(&doing);
        let all = [
            (Step::Read, agent.may_read(is_late, &reach) && !reach.memory.messages.is_empty()),
            (Step::Sort, agent.may_sort(&reach)),
            (Step::Fill, agent.may_fill()),
            (Step::Note, agent.may_note()),
            (Step::Freeze, forks(Thread::AsksToFork) && agent.may_freeze()),
            (Step::HandOver, forks(Thread::HasForked) && agent.may_hand_over(&reach)),
        ];
        steps.extend(all.into_iter().filter_map(|(step, is_possible)| is_possible.then_some(step)));
        // While the layout is changing nothing can be filled: the server reads, or waits.
        let is_asked = |page: &Page| world.asked[*page] && agent.may_serve() && world.memory.changing == 0;
        steps.extend((0..PAGES).filter(is_asked).map(Step::LookUp));
        let of_pages = (0..PAGES).flat_map(|page| {
            [Reclaim::Evict(page), Reclaim::Encode(page), Reclaim::Gather(page), Reclaim::Register(page)]
        });
        let others = [Reclaim::Publish, Reclaim::Write, Reclaim::NoteWritten, Reclaim::Adopt];
        let is_left = |step: &Reclaim| match step {
            Reclaim::Evict(_) => world.evictions > 0,
            Reclaim::Gather(_) => world.write_backs > 0,
            _ => true,
        };
        let reclaims = of_pages.chain(others).filter(|step| is_left(step) && agent.may(*step, &reach));
        steps.extend(reclaims.map(Step::Reclaim));
    }

    fn step(&self, world: &mut World, step: Step) {
        match step {
            Step::Run(thread) => return world.run(thread),
            Step::HandOver => return world.hand_over(self.broken),
            _ => {}
        }
        let World { asked, evictions, write_backs, .. } = world;
        let (mut asks, [mut evictions_left, mut write_backs_left]) = (*asked, [*evictions, *write_backs]);
        let (agent, program, mut reach) = self.reach(world);
        match step {
            Step::Run(_) | Step::HandOver => {}
            Step::Begin { thread, op, page, to } => program.begin(thread, op, page, to, reach.memory),
            Step::Read => {
                let told = reach.memory.messages.remove(0);
                agent.follow(told.message, &reach);
                program.let_go(told.thread);
            }
            Step::Sort => agent.sort(&reach),
            Step::LookUp(page) => {
                asks[page] = !agent.look_up(page, &mut reach);
                if !asks[page] && agent.served().is_none() {
                    program.wake(page);
                }
            }
            Step::Fill => {
                let served = agent.served();
                match agent.fill(&mut reach) {
                    Some(page) => asks[page] = true,
                    None => served.into_iter().for_each(|page| program.wake(page)),
                }
            }
            Step::Note => agent.note_served(&reach),
            Step::Reclaim(step) => {
                agent.reclaim(step, &mut reach);
                evictions_left -= u8::from(matches!(step, Reclaim::Evict(_)));
                write_backs_left -= u8::from(matches!(step, Reclaim::Gather(_)));
            }
            Step::Freeze => {
                agent.freeze(&reach);
                if let Some(thread) = program.threads.iter_mut().find(|thread| **thread == Thread::AsksToFork) {
                    *thread = Thread::Forks;
                }
            }
        }
        (world.asked, world.evictions, world.write_backs) = (asks, evictions_left, write_backs_left);
    }
}

impl World {
    fn run(&mut self, thread: usize) {
        let Self { program, memory, agent, asked, .. } = self;
        if program.threads[thread] == Thread::Forks {
            let copied = memory.fork();
            memory.changing += 1;
            self.child = Some(Child {
                memory: copied,
                expected: program.expected,
                copied: agent.table.clone(),
                read: agent.journal.as_ref().map_or(0, Journal::readings),
                agent: None,
            });
            program.threads[thread] = Thread::changes(Message::Fork);
        } else if let Err(wrong) = program.run(thread, memory, asked) {
            self.wrong = Some(wrong);
        }
    }

    /// The agent of the child takes over.
    fn hand_over(&mut self, broken: Option<Rule>) {
        let Self { program, memory, agent, medium, child, .. } = self;
        let Some(child) = child else { return };
        let reach = Reach { memory, medium, broken };
        let Some(shared) = agent.hand_over(&child.memory, child.read, &reach) else {
            self.wrong = Some("no order of the messages explains what a child has");
            return;
        };
        child.agent = Some(Agent::of_child(child.copied.clone(), &shared, &child.memory));
        if let Some(thread) = program.threads.iter_mut().find(|thread| **thread == Thread::HasForked) {
            *thread = Thread::Idle;
        }
    }

    /// Whether each page of the child's, once it has an agent, is what it was when it was forked.
    fn child_is_right(&self) -> bool {
        let Some(Child { memory, expected, agent: Some(agent), .. }) = &self.child else { return true };
        (0..PAGES).all(|page| match (expected[page], memory.pages[page]) {
            (None, None) => true,
            (Some(expected), Some(mapping)) => {
                let kept = || if mapping.is_registered { agent.kept(page, &self.medium) } else { 0 };
                expected.allows(mapping.present.unwrap_or_else(kept))
            }
            _ => false,
        })
    }

    fn is_done(&self) -> bool {
        self.program.threads == [Thread::Idle; THREADS]
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let begins = [Place::Untouched, Place::Resident, Place::Leaving(0), Place::Stored(1), Place::Below(0)];
        let pairs =
            begins.into_iter().flat_map(|first| [Place::Resident, Place::Stored(2)].map(|second| [first, second]));
        pairs.map(|places| self.begin_with(places)).collect()
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        if world.wrong.is_some() {
            return;
        }
        self.begins(world, steps);
        steps.extend((0..THREADS).filter(|thread| world.program.may_run(*thread)).map(Step::Run));
        self.agents(world, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        self.step(&mut next, step);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("a page holds what was written last", |_, world: &World| world.wrong.is_none()),
            Property::always("a child is what was forked", |_, world: &World| world.child_is_right()),
            Property::always("nobody waits for ever", |model: &Self, world: &World| {
                let mut steps = Vec::new();
                model.actions(world, &mut steps);
                let goes_on = steps.into_iter().any(|step| model.next_state(world, step).is_some());
                goes_on || world.is_done() || world.wrong.is_some()
            }),
            Property::sometimes("a child takes over", |_, world: &World| {
                world.child.as_ref().is_some_and(|child| child.agent.is_some())
            }),
            Property::sometimes("messages are held back", |_, world: &World| world.agent.is_holding()),
        ]
    }
}

impl Protocol {
    /// Two pages are managed, and where they are; the third address is free.
    fn begin_with(&self, places: [Place; 2]) -> World {
        let mapped = |place, value| Mapping {
            present: (place == Place::Resident).then_some(value),
            is_registered: true,
            is_shared: false,
        };
        let [first, second] = places;
        let expects =
            |place, value| Expected { value: if place == Place::Untouched { 0 } else { value }, is_discarded: false };
        let frame = if first == Place::Leaving(0) { Frame::Full(1) } else { Frame::Free };
        let segment = if first == Place::Below(0) { Segment::Written } else { Segment::Free };
        let table = Table {
            places: [first, second, Place::Untouched],
            regions: [true, true, false],
            frames: [frame, Frame::Free],
            segments: [segment, Segment::Free],
            given_up: [false; PAGES],
            discarded_early: [false; PAGES],
        };
        World {
            program: Program {
                threads: [Thread::Idle; THREADS],
                left: self.threads.map(|(_, left)| left),
                expected: [Some(expects(first, 1)), Some(expects(second, 2)), None],
            },
            memory: Memory {
                pages: [Some(mapped(first, 1)), Some(mapped(second, 2)), None],
                messages: Vec::new(),
                changing: 0,
            },
            agent: Agent::new(table),
            medium: [1, 0],
            asked: [false; PAGES],
            child: None,
            evictions: self.evictions,
            write_backs: self.write_backs,
            wrong: None,
        }
    }
}
