#include "pipeline/teacher/remote_teacher.hpp"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <exception>
#include <utility>
#include <vector>

#include "pipeline/async/abort.hpp"
#include "pipeline/async/deadline.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/teacher/endpoint_access.hpp"
#include "pipeline/teacher/head_fetch.hpp"
#include "pipeline/teacher/probe/teacher_fingerprint.hpp"
#include "pipeline/teacher/replicas.hpp"
#include "pipeline/teacher/teacher_endpoint.hpp"
#include "pipeline/teacher/teacher_key.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

using Clock = std::chrono::steady_clock;

/// In a comparison, the second replica gets at least this long after the first has answered.
constexpr std::chrono::nanoseconds kMinSecond = std::chrono::milliseconds(100);

/// A size that covers the answers of both.
AnswerSize larger_of(const AnswerSize& a, const AnswerSize& b) {
    AnswerSize size;
    size.held_bytes = std::max(a.held_bytes, b.held_bytes);
    size.decode_bytes = std::max(a.decode_bytes, b.decode_bytes);
    size.max_accepted_bytes = std::max(a.max_accepted_bytes, b.max_accepted_bytes);
    if (a.max_wire_bytes && b.max_wire_bytes) {
        size.max_wire_bytes = std::max(*a.max_wire_bytes, *b.max_wire_bytes);
    }
    return size;
}

class RemoteTeacher final : public TeacherSource {
  public:
    RemoteTeacher(asio::any_io_executor io, asio::any_io_executor decode, TeacherSpec spec,
                  RemoteTeacherOptions options)
        : io_(std::move(io)),
          options_(std::move(options)),
          resolver_(io_, options_.lookup, std::chrono::seconds(10), options_.hosts),
          settings_(std::make_shared<TeacherSettings>()),
          replicas_(io_, options_, settings_) {
        settings_->spec = std::move(spec);
        settings_->max_response_bytes = options_.max_response_bytes;
        settings_->samples = options_.samples;
        // Idle buffers count against no window, so they must be small compared with it.
        settings_->buffers = std::make_shared<BufferPool>(
            std::min<std::uint64_t>(options_.max_idle_buffer_bytes, settings_->spec.window_bytes / 10));
        if (!options_.traffic) {
            options_.traffic = std::make_shared<TrafficCounters>();
        }
        settings_->decode = std::move(decode);
    }

    Result<void> set_up() {
        const TeacherSpec& spec = settings_->spec;
        if (spec.endpoints.empty()) {
            return invalid_input("/teacher/endpoints: names no endpoint");
        }
        const TeacherProtocolRow* protocol = find_protocol(options_.protocols, spec.protocol);
        if (protocol == nullptr) {
            return invalid_input(std::string("/teacher/protocol: '") + to_string(spec.protocol) + "' is not supported");
        }
        if (spec.targets == TargetsChoice::hidden && !protocol->has_hidden_states) {
            return invalid_input(std::string("/teacher/targets: is hidden, but protocol '") + to_string(spec.protocol) +
                                 "' has no hidden states");
        }
        if (!spec.outputs.empty() && !protocol->has_samples) {
            return invalid_input(std::string("/teacher/protocol: '") + to_string(spec.protocol) +
                                 "' has no named tensors, which teachers of samples need");
        }
        auto bearer = read_bearer(spec.api_key_env, spec.api_key_file);
        if (!bearer) {
            return bearer.error();
        }
        auto access = make_endpoint_access({.section = "/teacher",
                                            .endpoints = spec.endpoints,
                                            .default_path = default_path_for(*protocol, spec.model),
                                            .complete_path = protocol->complete_path,
                                            .ca_file = spec.ca_file,
                                            .bearer = options_.bearer.empty() ? std::move(*bearer) : options_.bearer,
                                            .idle_limit = options_.idle_limit});
        if (!access) {
            return access.error();
        }
        for (const EndpointUrl& url : access->urls) {
            auto adapter = protocol->make_adapter({url, spec.model, settings_->buffers, spec.inputs, spec.outputs});
            if (!adapter) {
                return at_endpoint("/teacher", replicas_.all().size(), adapter.error());
            }
            auto codec = (*adapter)->assumed_codec(settings_->wanted());
            if (!codec) {
                return codec.error();
            }
            auto traffic = std::make_shared<TrafficCounters>(options_.traffic);
            auto endpoint = std::make_unique<TeacherEndpoint>(io_, resolver_, url, std::move(*adapter), access->tls,
                                                              traffic, access->pool, settings_);
            endpoint->set_codec(std::move(*codec));
            replicas_.add(std::move(endpoint), std::move(traffic));
        }
        return {};
    }

    std::size_t endpoint_count() const override { return replicas_.all().size(); }
    const std::string& endpoint_name(std::size_t endpoint) const override { return at(endpoint).name(); }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        // Endpoints that are not up yet will be asked like the others.
        const std::vector<TeacherEndpoint*> known = replicas_.taking_part();
        AnswerSize size = (known.empty() ? at(0) : *known.front()).codec()->answer_size(rows, columns);
        for (const TeacherEndpoint* endpoint : known) {
            size = larger_of(size, endpoint->codec()->answer_size(rows, columns));
        }
        return size;
    }

    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t endpoint, std::shared_ptr<const TokenBatch> tokens,
                                                      std::chrono::nanoseconds deadline) override {
        part_differing();
        try {
            const auto joined = co_await replicas_.join(endpoint, deadline);
            if (!joined) {
                co_return joined.error();
            }
            const std::optional<std::size_t> second = replicas_.second_for(endpoint, tokens->number);
            if (second && comparisons_->begin()) {
                co_return co_await ask_two(endpoint, *second, std::move(tokens), deadline);
            }
            co_return co_await at(endpoint).request(std::move(tokens), deadline);
        } catch (const boost::system::system_error& failure) {
            if (!is_abort(failure.code())) {
                throw;
            }
        }
        co_return FetchError{FailureKind::cancelled, at(endpoint).name() + ": cancelled", std::nullopt};
    }

    std::uint64_t bytes_received() const override { return options_.traffic->bytes_received.load(); }
    WireTraffic traffic(std::size_t endpoint) const override {
        const TrafficCounters& seen = *replicas_.all().at(endpoint).traffic;
        return {seen.bytes_sent.load(), seen.bytes_received.load()};
    }

    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t vocabulary_size) override {
        settings_->vocabulary = vocabulary_size;
        settings_->logits = 0;
        try {
            Result<TeacherInfo> info = co_await replicas_.probe();
            if (info && info->kind == TeacherTargets::Kind::hidden_states) {
                const Result<void> taken = co_await take_head(*info);
                if (!taken) {
                    co_return taken.error();
                }
            }
            co_return info;
        } catch (const boost::system::system_error& failure) {
            if (!is_abort(failure.code())) {
                throw;
            }
            co_return Error{ErrorKind::cancelled, "the probe of the teacher was cancelled"};
        }
    }

    void expect_batches(std::uint32_t rows, std::uint32_t columns) override {
        options_.batch_rows = rows;
        options_.batch_columns = columns;
    }

    HeadFetchCounters head_fetch() const override { return head_.counters(); }

    void close() override {
        part_differing();
        for (const Replica& replica : replicas_.all()) {
            replica.at->close();
        }
    }

  private:
    [[nodiscard]] TeacherEndpoint& at(std::size_t endpoint) const { return *replicas_.all().at(endpoint).at; }

    void part_differing() {
        if (const std::optional<ReplicaDifference> found = comparisons_->take()) {
            replicas_.part(*found);
        }
    }

    asio::awaitable<void> ask_second(std::size_t second, std::shared_ptr<const TokenBatch> tokens,
                                     std::chrono::nanoseconds deadline,
                                     std::optional<FetchResult<EncodedAnswer>>& answer) {
        answer = co_await at(second).request(std::move(tokens), deadline);
    }

    /// Returns the answer of `first`, to be compared with the answer of `second`, which gets as long again as `first`
    /// took. A failure of `second` is ignored.
    asio::awaitable<FetchResult<EncodedAnswer>> ask_two(std::size_t first, std::size_t second,
                                                        std::shared_ptr<const TokenBatch> tokens,
                                                        std::chrono::nanoseconds deadline) {
        const Clock::time_point began = Clock::now();
        const std::uint64_t micro_batch = tokens->number;
        FetchResult<EncodedAnswer> answer = FetchError{FailureKind::cancelled, {}, std::nullopt};
        std::optional<FetchResult<EncodedAnswer>> compared;
        TaskGroup group(io_);
        std::exception_ptr thrown;
        if (!group.spawn(ask_second(second, tokens, deadline, compared))) {
            throw std::logic_error("the comparison's task group is closed");
        }
        // The task refers to locals, so it is joined even if the caller is cancelled.
        const bool throwing = co_await asio::this_coro::throw_if_cancelled();
        co_await asio::this_coro::throw_if_cancelled(false);
        try {
            answer = co_await at(first).request(std::move(tokens), deadline);
        } catch (...) {
            thrown = std::current_exception();
        }
        if (thrown || !answer) {
            group.cancel();
        }
        try {
            auto joining = group.join();
            const auto longest = std::max<std::chrono::nanoseconds>(Clock::now() - began, kMinSecond);
            co_await with_deadline(std::move(joining), longest);
        } catch (...) {
            thrown = thrown ? thrown : std::current_exception();
        }
        co_await asio::this_coro::throw_if_cancelled(throwing);
        if (thrown) {
            comparisons_->end({});
            std::rethrow_exception(thrown);
        }
        if (!answer || !compared || !*compared) {
            comparisons_->end({});
            co_return answer;
        }
        ReplicaDifference numbers{first, second, micro_batch, {}};
        co_return compared_answer(std::move(*answer), std::move(**compared), std::move(numbers), comparisons_);
    }

    asio::awaitable<Result<void>> take_head(TeacherInfo& info) {
        HeadFetchOptions options;
        const EndpointProbeOptions patience = replicas_.probe_options(options_.start_deadline);
        options.request_deadline = patience.request_deadline;
        options.give_up = patience.give_up;
        co_return co_await head_.take(replicas_.taking_part(), replicas_.reference(), options, info);
    }

    asio::any_io_executor io_;
    RemoteTeacherOptions options_;
    HostResolver resolver_;
    std::shared_ptr<TeacherSettings> settings_;
    Replicas replicas_;
    HeadTaking head_;
    std::shared_ptr<ReplicaComparisons> comparisons_ = std::make_shared<ReplicaComparisons>();  ///< with decoders
};

}  // namespace

Result<std::unique_ptr<TeacherSource>> make_remote_teacher(asio::any_io_executor io, asio::any_io_executor decode,
                                                           const TeacherSpec& spec, RemoteTeacherOptions options) {
    auto teacher = std::make_unique<RemoteTeacher>(std::move(io), std::move(decode), spec, std::move(options));
    if (auto ready = teacher->set_up(); !ready) {
        return ready.error();
    }
    return std::unique_ptr<TeacherSource>(std::move(teacher));
}

}  // namespace distilld
