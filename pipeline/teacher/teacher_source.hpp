#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/scheduling/fetch_failure.hpp"
#include "pipeline/core/teacher_head.hpp"
#include "pipeline/core/tokenizer_signs.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// Expected size of the answer to one micro-batch, before it is requested.
struct AnswerSize {
    /// Maximum size of the answers' bodies, from the metadata or the probe; empty = unknown. For reserving memory: a
    /// larger body is still accepted, see max_accepted_bytes.
    std::optional<std::uint64_t> max_wire_bytes;
    std::uint64_t held_bytes = 0;          ///< memory that the decoded targets are expected to hold
    std::uint64_t decode_bytes = 0;        ///< memory for decoding on top of the larger of those two
    std::uint64_t max_accepted_bytes = 0;  ///< a body above it cannot be an answer; 0 = above max_wire_bytes
};

/// The encoded answer to one micro-batch. Move-only.
class EncodedAnswer {
  public:
    /// Turns the bytes into targets.
    class Decoder {
      public:
        virtual ~Decoder() = default;
        /// Call once, on any thread. Frees memory that the targets do not point into.
        virtual FetchResult<TeacherTargets> decode() = 0;
    };

    EncodedAnswer() = default;
    /// For a source that has targets without bytes.
    EncodedAnswer(TeacherTargets targets) : targets_(std::move(targets)) {}  // NOLINT(google-explicit-constructor)
    EncodedAnswer(std::unique_ptr<Decoder> decoder, std::uint64_t wire_bytes)
        : decoder_(std::move(decoder)), wire_bytes_(wire_bytes) {}

    /// Size of the received bodies.
    [[nodiscard]] std::uint64_t wire_bytes() const noexcept { return wire_bytes_; }

    /// Checked targets (ids below the vocabulary, no NaN), or a bad_response that names the endpoint. Call once, on any
    /// thread.
    [[nodiscard]] FetchResult<TeacherTargets> decode() {
        if (!decoder_) {
            return std::move(targets_);
        }
        const std::unique_ptr<Decoder> decoder = std::move(decoder_);
        return decoder->decode();
    }

  private:
    TeacherTargets targets_;
    std::unique_ptr<Decoder> decoder_;
    std::uint64_t wire_bytes_ = 0;
};

/// Result of the probe.
struct TeacherInfo {
    TeacherTargets::Kind kind = TeacherTargets::Kind::topk;
    std::uint32_t width = 0;            ///< k, V or H, as TeacherTargets::width
    std::uint64_t vocabulary_size = 0;  ///< 0 = unknown (top-k only)
    std::uint32_t top_k = 0;            ///< k that the teacher honours; 0 = all tokens
    bool deterministic = true;          ///< the same request twice gave the same bytes
    std::vector<SampleTensor> tensors;  ///< with kind tensors: names, shapes and types; no values
    std::vector<std::size_t> absent;   ///< endpoints that were not up; each joins with the first fetch that finds it up
    std::vector<std::size_t> refused;  ///< endpoints that are up and failed; each joins with the first fetch that
                                       ///< finds it fixed
    std::string description;           ///< one line for the log
    std::shared_ptr<const TeacherHead> head;  ///< with hidden states, unless an earlier probe returned it
    std::string fingerprint;                  ///< teacher_fingerprint() of its answer; empty = unknown
    TokenizerSigns tokenizer;                 ///< the teacher's
    std::vector<std::string> notes;           ///< notes for the user, one line each
};

/// Bytes on the wire: heads and bodies of requests, bodies of answers, complete or partial, used or not.
struct WireTraffic {
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
};

/// Requests that may be in flight at a time.
struct ConcurrencyLimits {
    std::uint32_t all = 1;                   ///< over all endpoints
    std::vector<std::uint32_t> of_endpoint;  ///< per endpoint

    friend bool operator==(const ConcurrencyLimits&, const ConcurrencyLimits&) = default;
};

/// A source of answers: remote endpoints, a store, a model in the process. Runs on the executor it was made with; any
/// number of fetches may run at once. The scheduler decides when to fetch, so a source neither retries nor limits; it
/// may reopen a stale keep-alive connection once.
class TeacherSource {
  public:
    virtual ~TeacherSource() = default;

    [[nodiscard]] virtual std::size_t endpoint_count() const = 0;
    [[nodiscard]] virtual const std::string& endpoint_name(std::size_t endpoint) const = 0;

    /// Asks each endpoint once with a few tokens; checks shape, honoured k, id range, normalisation and determinism.
    /// `vocabulary_size` is the student's; the teacher may know more or fewer tokens (many vocabularies are padded),
    /// and answers over its own (see fitting_teacher.hpp). For hidden states, fetches the head once and checks it.
    /// Waits for endpoints that are not up only until another has passed; TeacherInfo::absent names them.
    /// TeacherInfo::refused names endpoints that failed, or serve another model than the first that passed. Fails if
    /// none has passed.
    virtual boost::asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t vocabulary_size) = 0;

    /// Size of the answer for `rows` sequences with `columns` positions. More exact after the probe.
    [[nodiscard]] virtual AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const = 0;

    /// Fetches the answer to a micro-batch. EncodedAnswer::decode() is work for a compute thread. A protocol may send
    /// several requests for it, in sequence or a few at a time. Fails with FailureKind::timeout when `deadline` is over
    /// for all of them together, and with FailureKind::cancelled on per-operation cancellation (terminal). `tokens` is
    /// shared because a hedged or retried request may outlive the caller's frame.
    virtual boost::asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t endpoint,
                                                                     std::shared_ptr<const TokenBatch> tokens,
                                                                     std::chrono::nanoseconds deadline) = 0;

    /// Bytes of all received bodies, whole or partial, used or not. 0 without a network.
    [[nodiscard]] virtual std::uint64_t bytes_received() const { return 0; }

    /// Traffic of one endpoint; zeros without a network.
    [[nodiscard]] virtual WireTraffic traffic(std::size_t /*endpoint*/) const { return {}; }

    /// Whether a second request for a late answer may be faster.
    [[nodiscard]] virtual bool is_slow_by_chance() const { return true; }

    /// The size of micro-batches, if it is known only after a first probe; the next probe checks it.
    virtual void expect_batches(std::uint32_t /*rows*/, std::uint32_t /*columns*/) {}

    /// Receives the limits of the scheduler's fetches, before the first one and at each change. A source that makes
    /// several concurrent requests per fetch respects them too.
    virtual void set_concurrency_limits(const ConcurrencyLimits& /*limits*/) {}

    /// Counters of fetching the head for hidden states; zeros if none was fetched.
    [[nodiscard]] virtual HeadFetchCounters head_fetch() const { return {}; }

    /// Counters of answers in other tokens than the student's; empty: it has the same tokenizer.
    [[nodiscard]] virtual std::optional<AlignmentCounters> alignment() const { return std::nullopt; }

    /// Counters of the store that it reads or writes; empty without one.
    [[nodiscard]] virtual std::optional<StoreCounters> store() const { return std::nullopt; }

    /// Closes idle connections. All fetches must have ended.
    virtual void close() = 0;

    /// Makes its writes durable. Call after close().
    virtual boost::asio::awaitable<void> settle() { co_return; }
};

}  // namespace distilld
