//! Asks the system to wake the presenting thread first.

/// The lowest real-time priority: above everything ordinary, below sound servers (PipeWire takes 88 of 99).
const REAL_TIME_PRIORITY: i32 = 1;
/// What sound servers take where real time is not allowed.
const NICE: i32 = -11;

/// Lets the calling thread, which sleeps until a frame is due and then does next to nothing, be woken before others:
/// by real-time scheduling where the user may have that (root, or RLIMIT_RTPRIO), else by a nice level, else not at all.
/// On a busy host a frame would otherwise wait for a time slice of whatever runs, some milliseconds.
pub fn raise_this_thread() {
    let parameter = libc::sched_param { sched_priority: REAL_TIME_PRIORITY };
    // SAFETY: 0 is the calling thread; the parameter is valid for the call. SCHED_RESET_ON_FORK keeps threads that this
    // one starts from inheriting the priority.
    let real_time = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &parameter) } == 0;
    if real_time {
        return;
    }
    // SAFETY: plain system calls. On Linux a nice level belongs to a thread, named by its id.
    let nice = unsafe {
        let thread = libc::syscall(libc::SYS_gettid) as libc::id_t;
        libc::setpriority(libc::PRIO_PROCESS, thread, NICE)
    };
    if nice != 0 {
        tracing::debug!(
            "this user may not raise a thread's priority: frames may be late by a time slice on a busy host"
        );
    }
}
