#!/bin/sh
# Runs in the image: makes a small teacher for docker/compose.yaml, from nothing but what the image holds. Its text are
# the licences of the system and distilld's own documentation; `distilld run` trains the teacher on it, from scratch.
#
#   make-teacher.sh SPEC DATA_FOLDER MODEL_FOLDER [FILE…]     text files in place of those of the image
#
# Started again, it continues where it stopped, and ends at once if there is a teacher, made here or elsewhere.
set -eu
spec=$1
data=$2
model=$3
shift 3
# `distilld run` writes config.json last.
if [ -e "$model/config.json" ]; then
    echo "make-teacher: $model is a model already and is used"
    exit 0
fi
if [ $# = 0 ]; then set -- /usr/share/common-licenses/* /opt/distilld/share/doc/distilld/*.md \
    /opt/distilld/share/doc/distilld/docs/*.md; fi

# Documents of some paragraphs each, as JSONL {"text"}; every twelfth is held out. Text of the same files is the same.
to_jsonl() {
    awk -v train="$data/train.jsonl.part" -v held_out="$data/eval.jsonl" '
        function flush() {
            if (text == "") return
            count++
            print "{\"text\": \"" text "\"}" >(count % 12 == 0 ? held_out : train)
            text = ""
        }
        BEGIN { RS = ""; printf "" >train; printf "" >held_out }
        FNR == 1 { flush() }
        {
            gsub(/\\/, "&&"); gsub(/"/, "\\\""); gsub(/\t/, "\\t"); gsub(/\n/, "\\n"); gsub(/[[:cntrl:]]/, "")
            text = text (text == "" ? "" : "\\n\\n") $0
            if (length(text) > 1500) flush()
        }
        END { flush() }' "$@"
}

mkdir -p "$data"
if [ ! -e "$data/train.jsonl" ]; then
    to_jsonl "$@"
    mv "$data/train.jsonl.part" "$data/train.jsonl"
fi
exec distilld run "$spec" --set "/output=$model"
