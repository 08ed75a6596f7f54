#!/usr/bin/env bash
# A real study on two workers that are started separately, over TLS; both are killed, and one is asked to leave.
#   bash experiments/campaigns/engine/joined_study.sh OUT BEFORE     # BEFORE: what experiments/campaigns/same-numbers/run.py recorded
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
record=$1 out=$1/runs/everything before=$2 python=.venv/bin/python
mkdir -p "$record/runs"
$python -m infoflow study experiments/campaigns/same-numbers/plan.toml --out "$out" --cluster listen:127.0.0.1 --processes 0 2>"$out.log" &
study=$!
worker() { $python -m infoflow worker "$out" --processes 1 --patience 60s --log plain >"$out-worker.log" 2>&1 & echo $!; }
first=$(worker); second=$(worker)
sleep 45; kill -9 "$first"; sleep 3; first=$(worker)
sleep 35; kill -9 "$second"; sleep 3; second=$(worker)
sleep 30; kill -TERM "$first"; sleep 3; first=$(worker)
wait $study; echo "study: exit $?"
$python experiments/campaigns/same-numbers/run.py record "$record" --only everything
$python experiments/campaigns/same-numbers/run.py compare "$before" "$record"
kill -TERM "$first" "$second"; sleep 5
echo "fork servers left: $(pgrep -fc 'multiprocessing.forkserver' || true)"
