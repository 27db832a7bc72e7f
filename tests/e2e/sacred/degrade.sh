#!/bin/sh
# degrade.sh RANK WAY WORDS...: runs the words, on one rank not as on the others. In front of `lockstep run` or behind it.
rank=$1 way=$2
shift 2
[ "$OMPI_COMM_WORLD_RANK" = "$rank" ] || exec "$@"
case $way in
no_preload) unset LD_PRELOAD ;;
no_segment) unset LOCKSTEP_SEGMENT ;;
no_segment_file) rm -f "$LOCKSTEP_SEGMENT" ;;
no_environment) unset LD_PRELOAD LOCKSTEP_SEGMENT PYTHONPATH NVTX_INJECTION64_PATH ;;
other_tool) LD_PRELOAD="$OTHER_TOOL:$LD_PRELOAD" && export LD_PRELOAD ;;
late_tool) LD_PRELOAD="$LD_PRELOAD:$OTHER_TOOL" && export LD_PRELOAD ;;
late) sleep 3 ;;
# Read by the agent, so in front of it.
other_protocol) export LOCKSTEP_LIBRARY_DIR="$OTHER_PROTOCOL" ;;
# From here on in front of `lockstep run ... --`:
bare) while [ "$1" != -- ]; do shift; done; shift ;;
*) export "$way" ;; # Other options for this rank, as variables.
esac
exec "$@"
