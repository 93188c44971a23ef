#!/usr/bin/env bash
# Run a command as on a machine that has never seen this project: tests/bare.sh make test
#
# No environment variable is passed on but a plain PATH; the home and the folder of the real data are new and empty, so
# nothing that lies in a cache can help; and there is no network but the loopback, over which notebooks talk to their
# kernels. What was installed into .venv, and what is stored in this checkout, is there as ever.
set -euo pipefail

empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
mkdir "$empty/home" "$empty/data" "$empty/tmp"

# A network namespace of one's own: as root, or where users may make one.
raise_loopback='ip link set lo up 2>/dev/null || python3 -c "
import fcntl, socket, struct
request = struct.pack(\"16sh14x\", b\"lo\", 0x49)  # IFF_UP | IFF_LOOPBACK | IFF_RUNNING
fcntl.ioctl(socket.socket(), 0x8914, request)  # SIOCSIFFLAGS
" && exec "$@"'
alone=()
for flags in -n -rn; do
    if unshare "$flags" true 2>/dev/null; then
        alone=(unshare "$flags" bash -c "$raise_loopback" bare)
        break
    fi
done
if [ ${#alone[@]} = 0 ]; then
    echo "bare.sh: this machine allows no network namespace, so the network is not cut" >&2
fi

status=0
env -i PATH="$(dirname "$(command -v python3)"):/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" \
    HOME="$empty/home" TMPDIR="$empty/tmp" FEDLIB_DATA="$empty/data" "${alone[@]}" "$@" || status=$?
if [ -n "$(ls -A "$empty/data")" ]; then
    echo "bare.sh: data were downloaded: $(ls -A "$empty/data")" >&2
    exit 1
fi
exit "$status"
