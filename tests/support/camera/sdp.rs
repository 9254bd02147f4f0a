//! The session description (RFC 4566), written by hand.

use super::media::Source;
use super::script::Script;
use super::stream::Stream;

/// The URN of the ntp-64 header extension (RFC 6051, section 3.3).
const NTP64_URN: &str = "urn:ietf:params:rtp-hdrext:ntp-64";

/// What DESCRIBE answers; `base` is the URL of the request without its query.
pub fn describe(script: &Script, base: &str) -> String {
    let sdp = &script.sdp;
    let text = sdp.text.clone().unwrap_or_else(|| {
        let mut lines = vec![
            "v=0".to_owned(),
            format!("o=- 1 1 IN {} {}", if script.address.is_ipv6() { "IP6" } else { "IP4" }, script.address),
            "s=Scripted camera".to_owned(),
            format!("c=IN {}", if script.address.is_ipv6() { "IP6 ::" } else { "IP4 0.0.0.0" }),
            "t=0 0".to_owned(),
        ];
        lines.extend(sdp.control.as_ref().map(|control| format!("a=control:{}", control.replace("{base}", base))));
        lines.push("a=range:npt=now-".to_owned());
        lines.extend(sdp.session_lines.iter().cloned());
        script
            .streams
            .iter()
            .filter(|stream| stream.described)
            .for_each(|stream| media(stream, sdp.ssrc_cname, base, &mut lines));
        lines.iter().map(|line| format!("{line}{}", sdp.newline)).collect()
    });
    sdp.edit.map_or_else(|| text.clone(), |edit| edit(text.clone()))
}

fn media(stream: &Stream, ssrc_cname: bool, base: &str, lines: &mut Vec<String>) {
    let (format, payload_type) = (stream.media.format(), stream.payload_type);
    let source: Source = stream.media.open();
    lines.push(format!("m={} 0 RTP/AVP {payload_type}", format.kind));
    let rtpmap = stream.rtpmap.text(|| Some(format.rtpmap.to_owned()));
    lines.extend(rtpmap.map(|value| format!("a=rtpmap:{payload_type} {value}")));
    let fmtp = stream.fmtp.text(|| source.fmtp());
    lines.extend(fmtp.map(|value| format!("a=fmtp:{payload_type} {value}")));
    if let Some(ntp64) = stream.ntp64.as_ref().filter(|ntp64| ntp64.announced) {
        lines.push(format!("a=extmap:{} {NTP64_URN}", ntp64.id));
    }
    if let Some(ssrc) = stream.ssrc.filter(|_| ssrc_cname) {
        lines.push(format!("a=ssrc:{ssrc} cname:{}", stream.reports.cname));
    }
    lines.push("a=recvonly".to_owned());
    lines.push(format!("a=control:{}", stream.control.replace("{base}", base)));
}
