//! stress-ng: programs that do one thing to their memory as often as they can, and look whether it holds what it must.

use super::table::{PLAIN, Program};

/// Without `--oomable` a child that has been killed is started anew, and all is called well; a child that a fault has ended is
/// started anew even so, which only its debugging lines tell. What counts is said: whether it was well, what was not, and the status;
/// what pleat says stays on standard error.
const SAID: &str = r#"
    cat >stress <<'END'
stress() {
    status=0
    stress-ng --verify --oomable -v "$@" >said 2>&1 || status=$?
    grep -a '^pleat: ' said >&2 || true
    grep -aoE ' successful run|unsuccessful run|fail: .*|finished prematurely|child died: .*|killed by OOM killer' said | sed 's/\[[0-9]*\] //; s/(instance.*//' | sort -u
    echo "status $status"
}
END
"#;

const ONE: Program = Program { needs: &[("stress-ng", "stress-ng")], prepare: SAID, ..PLAIN };

/// Who gives up `CAP_SYS_PTRACE` may have no userfaultfd: docs/programs.md.
const UNPRIVILEGED: &str = "runs outside the budget: userfaultfd is not permitted";

pub(super) const STRESS: &[Program] = &[
    Program {
        name: "stress-vm",
        what: "stress-ng --vm, one method after the other, each once through its memory at least",
        // Operations are of 4096 steps, and a method that has reached them stops where it is, before it has looked: so many that
        // one round of 24 MiB is less, whether a step is a byte, eight bytes, or a line. The prime ones take a page a step and
        // would need a hundred million for a round of all bytes: all pages, often, but a round is too long; prime-incdec never counts what it has
        // done, nor does cache-lines in Debian 12: those end by their time.
        run: r"
            . $INPUT/stress
            methods() { operations=$1; time=$2; shift 2; for method; do echo $method; stress --vm 1 --vm-bytes 24m --vm-method $method --vm-ops $operations -t $time; done; }
            methods 12289 60 flip gray grayflip incdec modulo-x mscan walk-0d walk-1d
            methods 3073 60 fwdrev inc-nybble move-inv rand-set ror zero-one
            methods 193 60 cache-stripe checkerboard galpat-0 galpat-1 lfsr32 prime-0 prime-1 prime-gray-0 prime-gray-1 rand-sum read64 rowhammer \
                swap walk-0a walk-1a write64
            methods 6200 2 cache-lines prime-incdec
            for method in wrrd128nt write64nt write1024v; do
                # Not on every processor.
                if stress-ng --vm-method which 2>&1 | grep -q $method; then methods 193 60 $method; fi
            done
        ",
        ..ONE
    },
    Program {
        name: "stress-mmap",
        what: "stress-ng --mmap",
        run: ". $INPUT/stress; stress --mmap 2 --mmap-bytes 64M --mmap-ops 300 -t 60",
        ..ONE
    },
    Program {
        name: "stress-mremap",
        what: "stress-ng --mremap",
        run: ". $INPUT/stress; stress --mremap 2 --mremap-bytes 64M --mremap-ops 300 -t 60",
        ..ONE
    },
    Program {
        name: "stress-fork",
        what: "stress-ng --fork beside --vm",
        run: ". $INPUT/stress; stress --vm 1 --vm-bytes 64M --vm-method flip --fork 2 --fork-ops 3000 -t 10",
        messages: &[UNPRIVILEGED],
        ..ONE
    },
    Program {
        name: "stress-brk",
        what: "stress-ng --brk",
        run: "ulimit -d 98304; . $INPUT/stress; stress --brk 1 --brk-ops 100000 --vm 1 --vm-bytes 48M -t 20",
        ..ONE
    },
    Program {
        name: "stress-stack",
        what: "stress-ng --stack",
        run: ". $INPUT/stress; stress --stack 1 --stack-fill --stack-ops 3 --vm 1 --vm-bytes 64M -t 20",
        ..ONE
    },
    Program {
        name: "stress-madvise",
        what: "stress-ng --madvise",
        run: ". $INPUT/stress; stress --madvise 2 --madvise-ops 300 --vm 1 --vm-bytes 64M -t 20",
        ..ONE
    },
    Program {
        name: "stress-memfd",
        what: "stress-ng --memfd",
        run: ". $INPUT/stress; stress --memfd 1 --memfd-bytes 64M --memfd-ops 20 --vm 1 --vm-bytes 64M -t 20",
        ..ONE
    },
    Program {
        name: "stress-zombie",
        what: "stress-ng --zombie",
        run: ". $INPUT/stress; stress --zombie 1 --zombie-ops 3000 --vm 1 --vm-bytes 64M -t 20",
        ..ONE
    },
    Program {
        name: "stress-vfork",
        what: "stress-ng --vfork",
        run: ". $INPUT/stress; stress --vfork 1 --vfork-ops 3000 --vm 1 --vm-bytes 64M -t 20",
        ..ONE
    },
    Program {
        name: "stress-pthread",
        what: "stress-ng --pthread",
        run: ". $INPUT/stress; stress --pthread 1 --pthread-ops 20000 --vm 1 --vm-bytes 64M -t 20",
        ..ONE
    },
    Program {
        name: "stress-many",
        // Not --clone: of its children some sleep for ever, without pleat, too.
        what: "most of what else stress-ng has, a second each",
        run: r"
            . $INPUT/stress
            for stressor in aio context cpu daemon dev-shm env epoll eventfd exec fault futex get getrandom hdd inotify io itimer kcmp landlock malloc \
                membarrier mincore mlock mmapaddr mmapfixed mmapfork mmapmany mprotect mq msg msync munmap nanosleep numa pidfd pipe poll procfs ptrace randlist readahead \
                remap resources rlimit rseq schedpolicy seccomp secretmem sem sem-sysv sendfile session set shm shm-sysv sigaltstack sigfd sigio signest sigpending sigrt sigsegv \
                sigsuspend sockmany spawn splice stackmmap switch sysinval tee timer tree tsearch vecmath vm-rw vm-splice wait yield; do
                echo $stressor
                stress --$stressor 1 -t 1
            done
        ",
        ..ONE
    },
];
