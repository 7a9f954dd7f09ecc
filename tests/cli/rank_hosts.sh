#!/bin/sh
# Hosts in network namespaces of this machine, each with a name and an address of its own and no memory that
# they share: for ranks on several hosts, and on slow links. Needs root, iproute2 and util-linux.
#
#   rank_hosts.sh up N [RATE]     makes N hosts; what one sends is held to RATE, as in 1gbit
#   rank_hosts.sh run COMMAND...  runs it on the first, as Open MPI's mpirun with what `options` prints
#   rank_hosts.sh options N       what mpirun needs to reach N of them, a rank each
#   rank_hosts.sh cut I           host I hears and says nothing more
#   rank_hosts.sh runs I NAME     whether a process of that name is there
#   rank_hosts.sh down            ends what runs there, and removes them all
#
# RANK_HOSTS names them: its value and a number; "rank-host" where it is not set.
set -eu
name=${RANK_HOSTS:-rank-host}
network=10.231.77
self=$(readlink -f "$0")

on_host() {  # I COMMAND...
    host=$1
    shift
    ip netns exec "$name-$host" unshare --uts sh -c 'hostname "$1"; shift; exec "$@"' sh "$name-$host" "$@"
}

case "$1" in
up)
    ip netns add "$name-net"
    ip -n "$name-net" link add net type bridge
    ip -n "$name-net" link set net up
    for host in $(seq 1 "$2"); do
        ip netns add "$name-$host"
        ip -n "$name-$host" link set lo up
        ip -n "$name-$host" link add out type veth peer name "to-$host" netns "$name-net"
        ip -n "$name-net" link set "to-$host" master net up
        ip -n "$name-$host" addr add "$network.$host/24" dev out
        ip -n "$name-$host" link set out up
        [ $# -lt 3 ] || tc -n "$name-$host" qdisc add dev out root tbf rate "$3" burst 256kb latency 50ms
    done
    ;;
run)
    shift
    on_host 1 "$@"
    ;;
options)
    hosts=$(seq -s, -f "$network.%g:1" 1 "$2")
    echo "--allow-run-as-root --host $hosts --mca plm_rsh_agent $self --mca pml ob1 --mca btl tcp,self" \
        "--mca btl_tcp_if_include $network.0/24 --mca oob_tcp_if_include $network.0/24 --bind-to none"
    ;;
cut)
    ip -n "$name-$2" link set out down
    ;;
runs)
    for process in $(ip netns pids "$name-$2"); do
        [ "$(cat "/proc/$process/comm" 2>/dev/null)" != "$3" ] || exit 0
    done
    exit 1
    ;;
down)
    for host in $(ip netns list | sed -n "s/^\($name-[a-z0-9]*\).*/\1/p"); do
        for process in $(ip netns pids "$host"); do kill -KILL "$process" 2>/dev/null || true; done
        ip netns del "$host"
    done
    ;;
"$network".*)  # as mpirun calls what reaches a host
    host=${1##*.}
    shift
    on_host "$host" sh -c "$*"
    ;;
*)
    sed -n '2,13p' "$self"
    exit 2
    ;;
esac
