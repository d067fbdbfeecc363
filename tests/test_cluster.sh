#!/bin/sh
# Builds examples/cluster.c with each MPI library that is here, and runs it: the text is that of one machine, and when a rank
# is lost or stalls, the others end soon and say why. To be run in the repository root, after make.
. tests/check.sh
WARNINGS="-Wall -Wextra -Wconversion -Wshadow -Werror"
PROMPT="Once upon a time"
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # in a container
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM

# ranks N FLAG...: the program on N ranks
ranks()
{
    count=$1
    shift
    # shellcheck disable=SC2086
    run timeout 60 $RUN -n "$count" "$T/cluster" -m $TARGET -p "$PROMPT" -t 1 "$@"
}
# as_one N FLAG...: it writes what one machine writes
as_one()
{
    all=$*
    "$B/specdec" -m $TARGET -p "$PROMPT" -t 1 -n 40 --spec off $SAMPLING > "$T/one"
    shift
    # shellcheck disable=SC2086
    ranks "${all%% *}" -md $DRAFT -n 40 $SAMPLING "$@"
    check "$LIBRARY, $all $SAMPLING: it ends well" [ $status -eq 0 ]
    check "$LIBRARY, $all $SAMPLING: the text is that of one machine" same "$T/one" "$T/out"
}
# begun: waits until the text has begun, and a second more; a rank that still loads may be silent for longer
begun()
{
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        [ -s "$T/out" ] && break
        sleep 1
    done
    sleep 1
}
# without SIGNAL: one rank of three gets a signal in the middle; all end within seconds
without()
{
    # shellcheck disable=SC2086
    timeout 60 $RUN -n 3 "$T/cluster" -m $TARGET -p "$PROMPT" -t 1 --pretend 10 --silence 1 > "$T/out" 2> "$T/err" < /dev/null &
    mpi=$!
    begun
    one=$(ps -eo pid,args | awk -v name="$T/cluster" '$2 == name { print $1 }' | tail -n 1)
    start=$(date +%s)
    kill "-$1" "$one"
    wait $mpi
    status=$?
    seconds=$(($(date +%s) - start))
    check "$LIBRARY: without a rank (SIG$1) the others do not go on" [ $status -ne 0 ]
    check "$LIBRARY: and end within 5 seconds, not $seconds" [ $seconds -le 5 ]
    kill -KILL "$one" 2> /dev/null
}
# apart FLAG...: rank 1 alone has these, too
apart()
{
    # shellcheck disable=SC2086
    run timeout 60 $RUN -n 1 "$T/cluster" $MORE : -n 1 "$T/cluster" $MORE "$@"
    check "$LIBRARY: with $* at one rank alone all end" [ $status -eq 2 ]
}
# within_a_message: rank 0 stops behind the beginning of a large message, which a network carries in parts; rank 1 ends
within_a_message()
{
    cat > "$T/stall.c" << 'END'
#include <mpi.h>
#include <signal.h>
int MPI_Isend(const void *bytes, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    int rank, result = PMPI_Isend(bytes, count, type, to, tag, comm, request);
    PMPI_Comm_rank(comm, &rank);
    if (rank == 0 && count > 65536)
        raise(SIGSTOP);
    return result;
}
END
    build stall "$T/stall.c"
    long=$(printf 'Once upon a time there was a dog. %.0s' $(seq 30))
    # shellcheck disable=SC2086
    run env OMPI_MCA_btl=tcp,self timeout -k 1 30 $RUN -n 2 "$T/stall" $MORE -p "$long" -b 512 --silence 1 --split 3,1
    pkill -KILL -f "$T/stall"
    check "$LIBRARY: nobody waits for the rest of a message" says "rank 0 was not heard of"
}
# without_drafter: one that only drafts stops in the middle; the text goes on, and the program ends
without_drafter()
{
    "$B/specdec" -m $TARGET -p "$PROMPT" -t 1 -n 100 --spec off > "$T/one"
    # shellcheck disable=SC2086
    timeout 60 $RUN -n 3 "$T/cluster" -m $TARGET -md $DRAFT -p "$PROMPT" -t 1 -n 100 --pretend 15 --silence 1 --split 1,3,0 \
        --draft-rank 2 > "$T/out" 2> "$T/err" < /dev/null &
    mpi=$!
    begun
    one=$(ps -eo pid,args | awk -v name="$T/cluster" '$2 == name { print $1 }' | tail -n 1)
    kill -STOP "$one"
    start=$(date +%s)
    while kill -0 $mpi 2> /dev/null && [ $(($(date +%s) - start)) -lt 20 ]; do sleep 0.1; done
    seconds=$(($(date +%s) - start))
    kill -KILL "$one" 2> /dev/null
    wait $mpi
    check "$LIBRARY: without the rank that drafts all end, not after $seconds seconds" [ $seconds -lt 20 ]
    check "$LIBRARY: without the rank that drafts the text goes on, and it is said" says "rank 2 drafts no more"
    check "$LIBRARY: and is whole" same "$T/one" "$T/out"
}

# build NAME [SOURCE]: the program, and what shall be linked to it
build()
{
    # shellcheck disable=SC2086
    run mpicc.$LIBRARY -std=c99 -O1 -DSPECDEC_NO_SIMD -DSPECDEC_STATIC -pthread $WARNINGS -I. -o "$T/$1" examples/cluster.c $2 -lm
    check "compiles without a warning: $LIBRARY" [ $status -eq 0 ]
}

found=no
for LIBRARY in openmpi mpich; do
    if ! command -v mpicc.$LIBRARY > /dev/null || ! command -v mpirun.$LIBRARY > /dev/null; then
        continue
    fi
    found=yes
    RUN=mpirun.$LIBRARY
    [ $LIBRARY = openmpi ] && RUN="$RUN --oversubscribe"
    build cluster
    SAMPLING=""
    as_one 1
    as_one 2 --split 1,3
    as_one 4 --split 0,1,2,1 --link 1,1000
    check "memory is told before the text" says "rank 3: 1 layers, [0-9.]* MB"
    MORE="-m $TARGET -p once -t 1 -n 8" # the first of three ranks has memory for the output, the last one none
    # shellcheck disable=SC2086
    run timeout 60 $RUN -n 1 "$T/cluster" $MORE --memory 3.6 : -n 2 "$T/cluster" $MORE
    check "$LIBRARY: a rank gets as many layers as fit its memory" says "rank 0: 0 layers"
    check "$LIBRARY: which then starts" [ $status -eq 0 ]
    # shellcheck disable=SC2086
    run timeout 60 $RUN -n 2 "$T/cluster" $MORE : -n 1 "$T/cluster" $MORE --memory 0.5
    check "$LIBRARY: and no rank starts where none fits" says "no split was found that fits: rank 2 needs [0-9.]* MB"
    SAMPLING="--temp 0.9 --seed 5"
    as_one 3 --stats "$T/stats" --timeline "$T/lanes"
    check "statistics are JSON" valid "$T/stats"
    check "the timeline has a lane for each rank, and runs in them" \
        [ "$(grep -c '>rank [012]<' "$T/lanes") $(grep -c 'fill="#3b6fb6"' "$T/lanes" | sed 's/[1-9][0-9]*/some/')" = "3 some" ]
    as_one 3 --spec ngram
    as_one 2 --draft-rank 1 --draft-link 5,1
    as_one 3 --draft-rank 2 --split 1,3,0 --draft-link 5,1 --stats "$T/stats"
    bytes=$(sed 's/.*"from_draft_bytes_per_step":\([0-9]*\).*/\1/' "$T/stats")
    check "$LIBRARY: bytes from a draft rank are counted, and are few: $bytes a step" [ $(((bytes - 40) * (1500 - bytes) > 0)) -eq 1 ]
    SAMPLING=""
    ranks 2 -n 10 --split 1,1
    check "$LIBRARY: a split that is no whole is refused" says "all together have all"
    as_one 4 --draft-rank 1
    ranks 2 -n 10 --split 4,0
    check "$LIBRARY: a rank gets no layers by mistake" says "leaves 0 layers to rank 0 and to --draft-rank alone"
    # shellcheck disable=SC2086
    ranks 3 -n 10 -md $DRAFT --split 1,2,1 --draft-rank 2
    check "$LIBRARY: and the one that drafts none" says "leaves the rank of --draft-rank 0 layers"
    # shellcheck disable=SC2086
    ranks 2 -n 10 -md $DRAFT --draft-rank 2
    check "$LIBRARY: nor is there a draft rank that was not started" says "names one of the ranks"
    ranks 2 -n 10 --draft-rank 1
    check "$LIBRARY: nor one without a model" says "needs -md"
    ranks 2 -n 10 --draft-link 5,1
    check "$LIBRARY: nor its link without it" says "needs --draft-rank"
    apart --nonsense
    check "$LIBRARY: and hear why" says "unknown flag --nonsense"
    apart --help
    apart --split 2,2
    check "$LIBRARY: and hear what differs" says "all ranks take the same --split"
    apart --timeline "$T/lanes"
    run timeout 60 $RUN -n 3 "$T/cluster" --help
    check "$LIBRARY: help is given once" [ "$(grep -c '^usage' "$T/out") $status" = "1 0" ]
    within_a_message
    without STOP
    says "was not heard of" || says "cannot be reached"
    check "$LIBRARY: and say which" [ $? -eq 0 ]
    without KILL
    without_drafter
done
[ $found = yes ] || skip "no MPI here (mpicc.openmpi or mpicc.mpich): Debian: apt-get install libopenmpi-dev openmpi-bin"
report test_cluster
