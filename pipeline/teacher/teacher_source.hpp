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
#include "pipeline/core/fetch_failure.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/teacher_head.hpp"
#include "pipeline/core/tokenizer_signs.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// Why one request failed.
struct FetchError {
    FailureKind kind = FailureKind::connection;
    std::string message;                                   ///< names the endpoint
    std::optional<std::chrono::milliseconds> retry_after;  ///< what the server asked for
    /// The answer could be read, and its rows are none to train on: the same question has the same answer, unless the
    /// teacher is another one by then.
    bool unusable = false;
};

/// Found by boost::system::result through argument-dependent lookup.
[[noreturn]] inline void throw_exception_from_error(const FetchError& error, const boost::source_location&) {
    throw ErrorException(teacher_error(error.message));
}

template <class T>
using FetchResult = boost::system::result<T, FetchError>;

/// What the answer to one micro-batch takes, stated before it is asked for.
struct AnswerSize {
    /// Bodies of the answers at most, as far as the metadata or the probe's answer tell; empty = not known yet. For
    /// memory to be set aside: a body that is larger is still taken, see max_accepted_bytes.
    std::optional<std::uint64_t> max_wire_bytes;
    std::uint64_t held_bytes = 0;          ///< memory that the decoded targets are expected to hold
    std::uint64_t decode_bytes = 0;        ///< memory that decoding takes beside the larger of those two
    std::uint64_t max_accepted_bytes = 0;  ///< a body above it cannot be an answer; 0 = above max_wire_bytes
};

/// The answer to one micro-batch as it came over the wire: bytes that are still to be decoded. Moves, does not copy.
class EncodedAnswer {
  public:
    /// How the bytes become targets.
    class Decoder {
      public:
        virtual ~Decoder() = default;
        /// Any thread; once. What the targets do not point into is let go of here.
        virtual FetchResult<TeacherTargets> decode() = 0;
    };

    EncodedAnswer() = default;
    /// Of a source that has targets and no bytes.
    EncodedAnswer(TeacherTargets targets) : targets_(std::move(targets)) {}  // NOLINT(google-explicit-constructor)
    EncodedAnswer(std::unique_ptr<Decoder> decoder, std::uint64_t wire_bytes)
        : decoder_(std::move(decoder)), wire_bytes_(wire_bytes) {}

    /// Bodies of the answers as they came.
    [[nodiscard]] std::uint64_t wire_bytes() const noexcept { return wire_bytes_; }

    /// Targets, checked (ids below the vocabulary, no NaN), or a bad_response that names the endpoint. Any thread;
    /// once.
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

/// What the probe learnt.
struct TeacherInfo {
    TeacherTargets::Kind kind = TeacherTargets::Kind::topk;
    std::uint32_t width = 0;            ///< k, V or H, as TeacherTargets::width
    std::uint64_t vocabulary_size = 0;  ///< 0 = the teacher does not tell (top-k only)
    std::uint32_t top_k = 0;            ///< k that the teacher honours; 0 = it says something of all tokens
    bool deterministic = true;          ///< the same request twice gave the same bytes
    std::vector<std::size_t> absent;   ///< endpoints that were not up; each joins with the first fetch that finds it up
    std::vector<std::size_t> refused;  ///< endpoints that are up and did not pass; each joins with the first fetch that
                                       ///< finds it mended
    std::string description;           ///< one line for the log
    std::shared_ptr<const TeacherHead> head;  ///< with hidden states, when an earlier probe has not given it
    std::string fingerprint;                  ///< of what it says: teacher_fingerprint(); empty = not known
    TokenizerSigns tokenizer;                 ///< the teacher's
    std::vector<std::string> notes;           ///< what whoever runs it may like to know, one line each
};

/// Bytes that went over the wire: heads and bodies of requests, bodies of answers, whole or in part, used or not.
struct WireTraffic {
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
};

/// Requests that may be in flight at a time.
struct ConcurrencyLimits {
    std::uint32_t all = 1;                   ///< over all endpoints
    std::vector<std::uint32_t> of_endpoint;  ///< each

    friend bool operator==(const ConcurrencyLimits&, const ConcurrencyLimits&) = default;
};

/// Something that answers for the teacher: remote endpoints, a store, a model in the process. One executor (the one it
/// was made with); any number of fetches at once. Which fetch is made when is the scheduler's to decide, so a source
/// neither retries nor limits; it may reopen a stale keep-alive connection once, which is not a failure.
class TeacherSource {
  public:
    virtual ~TeacherSource() = default;

    [[nodiscard]] virtual std::size_t endpoint_count() const = 0;
    [[nodiscard]] virtual const std::string& endpoint_name(std::size_t endpoint) const = 0;

    /// Asks each endpoint once with a few tokens, checks shape, honoured k, id range, normalisation and determinism.
    /// `vocabulary_size` is the student's; the teacher may know more tokens or fewer (many vocabularies are padded),
    /// and answers are over its own (see fitting_teacher.hpp). Of hidden states, the head is fetched here, once, and
    /// checked. Endpoints that are not up are waited for only until one of the others has passed: they are named in
    /// TeacherInfo::absent, and those that did not pass, or serve another model than the first that did, in
    /// TeacherInfo::refused. It fails when none has passed.
    virtual boost::asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t vocabulary_size) = 0;

    /// Of the answer to a micro-batch of `rows` sequences with `columns` positions. More is known after the probe.
    [[nodiscard]] virtual AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const = 0;

    /// The answer to a micro-batch, not decoded yet: EncodedAnswer::decode is work for a thread that computes. A
    /// protocol may need several requests for it, one after the other or a few at a time. Gives up with
    /// FailureKind::timeout when `deadline` is over for all of them together; per-operation cancellation (terminal)
    /// ends it with FailureKind::cancelled. `tokens` is shared because a hedged or retried request may outlive the
    /// caller's frame.
    virtual boost::asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t endpoint,
                                                                     std::shared_ptr<const TokenBatch> tokens,
                                                                     std::chrono::nanoseconds deadline) = 0;

    /// Bodies of all answers that came over the wire, whole or in part, used or not. 0 when there is no wire.
    [[nodiscard]] virtual std::uint64_t bytes_received() const { return 0; }

    /// Of one endpoint; zeros when there is no wire.
    [[nodiscard]] virtual WireTraffic traffic(std::size_t /*endpoint*/) const { return {}; }

    /// Whether an answer that is late may come sooner when it is asked for a second time.
    [[nodiscard]] virtual bool is_slow_by_chance() const { return true; }

    /// What micro-batches will have, where that is known only after a first probe; the next one finds out whether the
    /// endpoints take so much.
    virtual void expect_batches(std::uint32_t /*rows*/, std::uint32_t /*columns*/) {}

    /// What holds for the scheduler's fetches, before the first of them and whenever it changes. A source that makes
    /// several requests of one fetch at the same time keeps to it too.
    virtual void set_concurrency_limits(const ConcurrencyLimits& /*limits*/) {}

    /// Of the head for hidden states; zeros where none was fetched.
    [[nodiscard]] virtual HeadFetchCounters head_fetch() const { return {}; }

    /// Of the store that it reads or writes; nothing without one.
    [[nodiscard]] virtual std::optional<StoreCounters> store() const { return std::nullopt; }

    /// Closes idle connections. Fetches under way must have ended.
    virtual void close() = 0;

    /// Makes durable what it has written. After close().
    virtual boost::asio::awaitable<void> settle() { co_return; }
};

}  // namespace distilld
