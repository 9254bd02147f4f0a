//! A session that plays: one thread that sends every packet and report when it is due.

use super::super::timeline::{MS, Nanos};
use super::lane::{CameraTime, Lane};
use super::log::{Log, Record, Truth, What};
use super::media::Media;
use super::rtp;
use super::script::{Event, Script};
use super::wire::{Outlet, Parcel, Transport, Wire};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// The sockets of the client's RTCP are looked at so often at least.
const POLL: Nanos = 50 * MS;
/// The payload type and SSRC of a stray frame: nobody has announced them.
const STRAY: (u8, u32) = (127, 0x5757_5757);

/// When a session was last kept alive, on the timeline.
pub type Alive = Arc<Mutex<Nanos>>;

/// What a playing session is told from outside.
#[derive(Debug)]
pub enum Order {
    Happen(Event),
    Stop,
}

/// Something to make, with the index of its lane.
enum Task {
    Event,
    Frame(usize),
    Report(usize),
}

/// Everything that a playing session needs.
pub struct Player {
    connection: u32,
    session: u32,
    lanes: Vec<(Lane, Arc<Transport>)>,
    wire: Wire,
    outlet: Arc<Mutex<Outlet>>,
    /// With their times on the timeline, the next one last.
    events: Vec<(Nanos, Event)>,
    /// Neither packet nor report.
    silent: bool,
    time: CameraTime,
    delay: Nanos,
    alive: Alive,
    /// The session ends when it was not kept alive for so long.
    expires_after: Option<Nanos>,
    log: Log,
}

/// What a player is made of beside the script.
pub struct Setup {
    pub connection: u32,
    pub session: u32,
    /// The streams that were set up, by their place in the script.
    pub transports: Vec<(usize, Arc<Transport>)>,
    pub outlet: Arc<Mutex<Outlet>>,
    pub time: CameraTime,
    pub alive: Alive,
    pub log: Log,
}

impl Player {
    pub fn new(script: &Script, setup: Setup) -> Self {
        let Setup { connection, session, transports, outlet, time, alive, log } = setup;
        let now = time.timeline.now();
        let from = now + script.first_packet_after;
        let lane = |(stream, transport): (usize, Arc<Transport>)| {
            (Lane::new(&script.streams[stream], stream, session, from), transport)
        };
        let lanes: Vec<_> = transports.into_iter().map(lane).collect();
        let start = lanes.iter().map(|(lane, _)| lane.due(script.delay)).min().unwrap_or(now);
        let mut events: Vec<(Nanos, Event)> = script
            .events
            .iter()
            .filter(|timed| timed.session.is_none_or(|only| only == session))
            .map(|timed| (start + timed.after, timed.event.clone()))
            .collect();
        // Stable: of two events for the same time, the one named first happens first.
        events.reverse();
        events.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        Self {
            connection,
            session,
            lanes,
            wire: Wire::new(&script.network),
            outlet,
            events,
            silent: false,
            time,
            delay: script.delay,
            alive,
            expires_after: script.rtsp.sessions_expire.then_some(script.rtsp.session_timeout),
            log,
        }
    }

    /// What the streams start with.
    pub fn truths(&self) -> Vec<Truth> {
        self.lanes.iter().map(|(lane, _)| lane.truth(&self.time.timeline)).collect()
    }

    /// Plays until it is told to stop, or the client has gone.
    pub fn run(mut self, orders: &Receiver<Order>) {
        self.note(What::Playing { session: self.session, streams: self.truths() });
        loop {
            let due = self.time.timeline.instant(self.next_due());
            match orders.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Order::Happen(event)) => self.happen(self.time.timeline.now(), event),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.work().is_err() || self.expired() {
                self.outlet().close();
                return;
            }
        }
    }

    fn note(&self, what: What) {
        self.log.push(Record { at: self.time.timeline.now(), connection: self.connection, what });
    }

    fn outlet(&self) -> std::sync::MutexGuard<'_, Outlet> {
        self.outlet.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be made next, and when. Of things for the same time, events come first and reports last.
    fn next_task(&self) -> Option<(Nanos, Task)> {
        let event = self.events.last().map(|(at, _)| (*at, Task::Event));
        let lanes = || self.lanes.iter().enumerate();
        let frames = lanes().map(|(index, (lane, _))| (lane.due(self.delay), Task::Frame(index)));
        let reports = lanes().filter_map(|(index, (lane, _))| Some((lane.report_due()?, Task::Report(index))));
        event.into_iter().chain(frames).chain(reports).min_by_key(|(due, _)| *due)
    }

    fn next_due(&self) -> Nanos {
        let dues = [self.next_task().map(|(due, _)| due), self.wire.due(), Some(self.time.timeline.now() + POLL)];
        dues.into_iter().flatten().min().unwrap_or_default()
    }

    fn expired(&self) -> bool {
        let alive = *self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        let expired = self.expires_after.is_some_and(|after| self.time.timeline.now() > alive + after);
        if expired {
            self.note(What::Expired);
        }
        expired
    }

    /// Does everything that is due by now, in the order and with the times in which it was due: what is sent does not
    /// depend on how busy the machine is.
    fn work(&mut self) -> io::Result<()> {
        let now = self.time.timeline.now();
        while let Some((due, task)) = self.next_task().filter(|(due, _)| *due <= now) {
            match task {
                Task::Event => {
                    if let Some((_, event)) = self.events.pop() {
                        self.happen(due, event);
                    }
                }
                Task::Frame(index) => {
                    let packets = self.lanes[index].0.frame(&self.time, due);
                    self.send(now, index, false, packets);
                }
                Task::Report(index) => {
                    let packets = self.lanes[index].0.report(&self.time, due);
                    self.send(now, index, true, packets);
                }
            }
        }
        while let Some(parcel) = self.wire.pop(now) {
            self.deliver(&parcel)?;
        }
        for (lane, transport) in &self.lanes {
            if let Transport::Udp(pair) = &**transport {
                for (rtcp, data) in pair.received() {
                    self.note(What::Datagram { stream: lane.stream, rtcp, data });
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, now: Nanos, lane: usize, rtcp: bool, packets: Vec<Vec<u8>>) {
        if !self.silent {
            packets.into_iter().for_each(|bytes| self.wire.push(now, Parcel { lane, rtcp, bytes }));
        }
    }

    fn deliver(&self, parcel: &Parcel) -> io::Result<()> {
        match &*self.lanes[parcel.lane].1 {
            Transport::Interleaved { rtp, rtcp } => {
                self.outlet().frame(if parcel.rtcp { *rtcp } else { *rtp }, &parcel.bytes)
            }
            Transport::Udp(pair) => {
                pair.send(parcel.rtcp, &parcel.bytes);
                Ok(())
            }
        }
    }

    fn happen(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Silence => self.silent = true,
            Event::Resume => self.silent = false,
            Event::CloseTcp => self.outlet().close(),
            Event::Bye => {
                self.bye(now);
                self.silent = true;
            }
            Event::ChangeSource { bye } => {
                if bye {
                    self.bye(now);
                }
                self.lanes.iter_mut().for_each(|(lane, _)| lane.change_source());
            }
            Event::StepClock(by) => self.time.step += by,
            Event::RestartTimestamps(from) => {
                self.lanes.iter_mut().for_each(|(lane, _)| lane.restart_timestamps(from));
            }
            Event::OutlierTimestamp(ticks) => self.lanes.iter_mut().for_each(|(lane, _)| lane.outlier(ticks)),
            Event::JumpSequence(by) => self.lanes.iter_mut().for_each(|(lane, _)| lane.jump_sequence(by)),
            Event::Switch(recording) => {
                let video = self.lanes.iter_mut().filter(|(lane, _)| lane.is_video());
                video.for_each(|(lane, _)| lane.switch(Media::H264(recording).open()));
            }
            Event::StrayFrame { channel } => {
                let (payload_type, ssrc) = STRAY;
                let packet = rtp::Packet { payload_type, ssrc, payload: vec![0; 100], ..rtp::Packet::default() };
                // An error shows at the next frame of the session's own.
                let _ = self.outlet().frame(channel, &packet.bytes());
            }
            Event::Rtcp(bytes) => {
                (0..self.lanes.len()).for_each(|lane| self.send(now, lane, true, vec![bytes.clone()]))
            }
            Event::Change(change) => {
                self.lanes.iter_mut().for_each(|(lane, _)| change(lane.stream, &mut lane.script));
            }
        }
    }

    fn bye(&mut self, now: Nanos) {
        for index in 0..self.lanes.len() {
            let bye = self.lanes[index].0.bye(&self.time, now);
            self.send(now, index, true, vec![bye]);
        }
    }
}
