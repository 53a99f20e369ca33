#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/scenario.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld::bench {

/// How an answer is written.
enum class AnswerForm { logits, tensors, prompt_logprobs, binary };

/// One answer of a real teacher's form, and what reads it.
struct DecodeCase {
    std::string name;
    AnswerForm form = AnswerForm::logits;
    std::shared_ptr<const TeacherCodec> codec;
    TokenBatch tokens;
    HttpResponse response;
};

/// The answers of `distilld-bench decode`. Numbers are drawn floats, written as servers write them: as the doubles that
/// they are, in as many digits as it takes (Python's json, and RapidJSON).
std::vector<DecodeCase> make_decode_cases(const DecodeOptions& options);

}  // namespace distilld::bench
