#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <span>
#include <string>

#include "pipeline/teacher/protocols/protocol.hpp"
#include "pipeline/teacher/protocols/registry.hpp"

/// Factories for the protocols listed in registry.cpp.
namespace distilld {

/// The seed's JSON: {"input_ids":[[…]],"return_logits":true} answered by {"logits":[B][T][V]}
/// (architehc/nanochat-rs-ternary, crates/nanochat-train/src/distill.rs).
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_seed_protocol_adapter(
    const ProtocolSettings& settings);

/// SGLang's `POST /generate` with token ids and `return_logprob`: rows in base64 if the server supports that form
/// (2026), else as nested arrays. SGLang does not report its vocabulary, and a k or an id above it crashes its process,
/// so the student's vocabulary must not be larger than the teacher's.
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_sglang_protocol_adapter(
    const ProtocolSettings& settings);

/// TRL's `trl vllm-serve`: `POST /get_sequence_logprobs/` with binary rows. Prompts of one token each are sent, so that
/// there is a row for every other token: row j of a sequence is the distribution after its token j.
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_trl_protocol_adapter(
    const ProtocolSettings& settings);

/// The path of an endpoint's URL without the part that belongs to a protocol and without a trailing slash.
[[nodiscard]] std::string root_of(std::string path, std::span<const TeacherProtocolRow> rows);

/// `protocol: "auto"`: identifies the server and uses the protocol of `rows` that is_spoken_by() finds. The URL may be
/// the server's root, or end in a path of one of the protocols. A server that speaks none of them is refused; the
/// message names its kind.
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_automatic_adapter(
    const ProtocolSettings& settings, std::span<const TeacherProtocolRow> rows);

}  // namespace distilld
