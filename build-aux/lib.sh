# Shared by the scripts beside it: installs what is missing. To be sourced, from the top of the tree.
# shellcheck shell=bash disable=SC2034

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# What every build needs (Debian 12 and later).
PACKAGES_BUILD=(ca-certificates pkg-config gcc libc6-dev clang libclang-dev
  libgstreamer1.0-dev libgstreamer-plugins-base1.0-dev libgstrtspserver-1.0-dev libpipewire-0.3-dev)
# What playing and sending need at run time.
PACKAGES_RUN=(gstreamer1.0-plugins-base gstreamer1.0-plugins-good gstreamer1.0-plugins-bad gstreamer1.0-plugins-ugly
  gstreamer1.0-libav gstreamer1.0-pulseaudio)
# The window.
PACKAGES_GUI=(libgtk-4-dev libadwaita-1-dev gstreamer1.0-gl)
# What the tests start or read with.
PACKAGES_TEST=(gstreamer1.0-tools gstreamer1.0-plugins-base-apps ffmpeg vlc-bin vlc-plugin-base chrony faketime iproute2 procps python3 util-linux
  pipewire wireplumber pipewire-pulse pulseaudio-utils dbus dbus-x11
  xvfb xauth x11-utils at-spi2-core adwaita-icon-theme fonts-dejavu-core libglib2.0-bin
  desktop-file-utils appstream gettext)

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "this needs root for '$*': run it as root, or install sudo"; fi
}

# Installs those of the given Debian packages that are missing.
ensure_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null; then
    say "This is no Debian: make sure yourself that these are there: $*"; return
  fi
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  say "Installing ${missing[*]}"
  as_root apt-get update -qq || die "apt-get update failed: is there a network?"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
    die "these packages could not be installed: ${missing[*]}"
}

# Makes sure that cargo is there and new enough; else asks rustup's own installer for it.
ensure_rust() {
  local wanted have
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  [ -d "${CARGO_HOME:-$HOME/.cargo}/bin" ] && PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
  have=$(rustc --version 2>/dev/null | cut -d' ' -f2 || true)
  if [ -n "$have" ] && command -v cargo >/dev/null &&
    [ "$(printf '%s\n' "$wanted" "$have" | sort -V | head -n 1)" = "$wanted" ]; then return; fi
  say "Installing Rust (${have:-none} is here, $wanted or later is needed)"
  ensure_packages curl ca-certificates
  local installer; installer=$(mktemp)
  curl --proto '=https' --tlsv1.2 -sSf --max-time 60 https://sh.rustup.rs -o "$installer" ||
    die "Rust $wanted or later is needed, and rustup's installer cannot be reached: install Rust, then run this again"
  sh "$installer" -y -q --no-modify-path --profile minimal --default-toolchain stable --component clippy --component rustfmt
  rm -f "$installer"
  PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
  command -v cargo >/dev/null || die "Rust could not be installed"
}
