#include "pipeline/teacher/probe/endpoint_probe.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/http_failure.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/teacher/probe/probe_checks.hpp"
#include "pipeline/teacher/protocols/adapters.hpp"
#include "pipeline/teacher/protocols/registry.hpp"
#include "pipeline/teacher/protocols/server_signs.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstPause{250};
constexpr std::chrono::seconds kLastPause{5};
constexpr std::uint64_t kDescriptionLimit = std::uint64_t{1} << 20U;

bool same_bytes(const ArrayView& a, const ArrayView& b) {
    return a.type == b.type && std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
}

/// Statuses of a server that loads its model, and of a gateway without its server.
bool not_up_status(unsigned status) {
    return status == 429 || (status >= 502 && status <= 504);
}

/// Makes the failure name a page of the endpoint's server instead of the endpoint.
FetchError of_page(FetchError failure, const std::string& endpoint, const std::string& page) {
    if (failure.message.starts_with(endpoint)) {
        failure.message.replace(0, endpoint.size(), page);
    }
    return failure;
}

/// The failure if the answer shows that the server is not up. `loading_status`: see ProbeDialogue::send.
std::optional<FetchError> not_up_answer(const std::string& page, const HttpResponse& response,
                                        std::optional<unsigned> loading_status) {
    if (is_success(response)) {
        return std::nullopt;
    }
    FetchError failure = failure_of_status(page, response);
    const bool in_words = failure.kind == FailureKind::not_found && response.status != 404;
    const bool has_another_model = response.status == 404 && failure.kind == FailureKind::rejected;
    const bool loading = response.status == loading_status && !has_another_model;
    if (!not_up_status(response.status) && !loading && !in_words) {
        return std::nullopt;
    }
    if (!is_outage(failure.kind)) {
        failure.kind = FailureKind::overloaded;
    }
    return failure;
}

FetchError bad_rows(const TeacherEndpoint& endpoint, const std::string& defect) {
    return {FailureKind::bad_response, endpoint.name() + ": " + defect, std::nullopt};
}

/// Requests each page once, without retries.
class OneLook final : public ProbeDialogue {
  public:
    OneLook(TeacherEndpoint& endpoint, std::chrono::nanoseconds deadline) : endpoint_(endpoint), deadline_(deadline) {}

    std::string page(std::string_view target) const override { return endpoint_.page(target); }
    asio::awaitable<FetchResult<HttpResponse>> send(HttpRequest request, std::optional<unsigned>) override {
        request.response_limit = kDescriptionLimit;
        return endpoint_.send(std::move(request), deadline_);
    }
    asio::awaitable<FetchResult<EndpointAnswer>> ask(std::shared_ptr<const TeacherCodec>) override {
        co_return FetchError{FailureKind::rejected, "nothing is asked", std::nullopt};
    }

  private:
    TeacherEndpoint& endpoint_;
    std::chrono::nanoseconds deadline_;
};

/// Identifies the server by its other pages when it lacks the page of the request. Returns a suffix for messages that
/// names its protocol if it differs from the spec's; empty for protocol "auto". Each page is requested once. Throws
/// operation_aborted when cancelled.
asio::awaitable<std::string> look_at_server(TeacherEndpoint& endpoint, std::chrono::nanoseconds deadline) {
    const TeacherProtocol own = endpoint.settings().spec.protocol;
    if (own == TeacherProtocol::automatic) {
        co_return std::string();
    }
    OneLook dialogue(endpoint, deadline);
    const auto signs =
        co_await ask_for_signs(dialogue, root_of(endpoint.url().path, teacher_protocols()), endpoint.url().query);
    const std::string asked = std::string(" (/teacher/protocol is \"") + to_string(own) + "\")";
    if (!signs || (signs->inference_server.empty() && !signs->models)) {
        co_return asked;
    }
    const auto rows = teacher_protocols();
    const auto spoken = std::find_if(rows.begin(), rows.end(), [&](const TeacherProtocolRow& row) {
        return row.is_spoken_by != nullptr && row.is_spoken_by(*signs);
    });
    const std::string models = signs->models ? ", with the models " + names_of(*signs->models) : std::string();
    if (spoken == rows.end()) {
        co_return "; it is an OpenAI-style server of an unknown kind" + models + asked;
    }
    if (spoken->protocol == own) {
        co_return std::string();
    }
    co_return "; the server seems to speak \"" + std::string(spoken->name) + "\"" + models + asked;
}

class EndpointDialogue final : public ProbeDialogue {
  public:
    EndpointDialogue(TeacherEndpoint& endpoint, EndpointProbeOptions options)
        : endpoint_(endpoint),
          options_(std::move(options)),
          tokens_(endpoint.settings().samples ? endpoint.settings().samples
                                              : probe_tokens(endpoint.settings().vocabulary, 1)) {}

    std::string page(std::string_view target) const override { return endpoint_.page(target); }

    asio::awaitable<FetchResult<HttpResponse>> send(HttpRequest question,
                                                    std::optional<unsigned> loading_status) override {
        const std::string page = endpoint_.page(question.target);
        for (;;) {
            HttpRequest request = question;
            request.response_limit = kDescriptionLimit;
            auto response = co_await endpoint_.send(std::move(request), options_.request_deadline);
            std::optional<FetchError> failure;
            if (!response) {
                failure = of_page(response.error(), endpoint_.name(), page);
            } else {
                failure = not_up_answer(page, *response, loading_status);
            }
            if (!failure) {
                co_return response;
            }
            const bool again = co_await may_ask_again(*failure);
            if (!again) {
                co_return *failure;
            }
        }
    }

    asio::awaitable<FetchResult<EndpointAnswer>> ask(std::shared_ptr<const TeacherCodec> codec) override {
        return ask_patiently(std::move(codec), tokens_, AnswerBound::probe);
    }

    /// Sends the probe's tokens again, in the same way as a micro-batch.
    asio::awaitable<FetchResult<EndpointAnswer>> ask_again(std::shared_ptr<const TeacherCodec> codec) {
        return ask_patiently(std::move(codec), tokens_, AnswerBound::stated);
    }

    /// Two short sequences that differ in one token.
    asio::awaitable<FetchResult<EndpointAnswer>> ask_pair(std::shared_ptr<const TeacherCodec> codec) {
        auto tokens = probe_tokens(endpoint_.settings().vocabulary, kAlignmentRows, kAlignmentColumns);
        return ask_patiently(std::move(codec), std::move(tokens), AnswerBound::stated);
    }

    /// Sends a batch of the size of a micro-batch. A refusal names the spec's fields that set this size.
    asio::awaitable<FetchResult<EndpointAnswer>> ask_whole_batch(std::shared_ptr<const TeacherCodec> codec) {
        const std::uint32_t columns = std::max(options_.batch_columns, kProbeColumns);
        auto tokens = probe_tokens(endpoint_.settings().vocabulary, options_.batch_rows, columns);
        auto answer = co_await ask_patiently(std::move(codec), std::move(tokens), AnswerBound::stated);
        if (!answer && !is_outage(answer.error().kind) && !answer.error().unusable) {
            FetchError failure = answer.error();
            failure.message += " (one sequence of " + std::to_string(kProbeColumns) + " tokens was answered, the " +
                               std::to_string(options_.batch_rows) + " of " + std::to_string(columns) +
                               " of a micro-batch were not: see /training/batch_size and /dataset/sequence_length)";
            co_return failure;
        }
        co_return answer;
    }

  private:
    /// Retries while the endpoint is not up, until the probe gives up.
    asio::awaitable<FetchResult<EndpointAnswer>> ask_patiently(std::shared_ptr<const TeacherCodec> codec,
                                                               std::shared_ptr<const TokenBatch> tokens,
                                                               AnswerBound bound) {
        for (;;) {
            auto answer = co_await endpoint_.ask(codec, tokens, options_.request_deadline, bound);
            if (answer) {
                co_return answer;
            }
            FetchError failure = answer.error();
            const bool again = co_await may_ask_again(failure);
            if (!again) {
                co_return failure;
            }
        }
    }

    /// Waits before a retry. False if a retry is useless or the time is up. Adds what the server seems to be to a
    /// failure that found no page.
    asio::awaitable<bool> may_ask_again(FetchError& failure) {
        if (failure.kind == FailureKind::not_found) {
            failure.message += co_await look_once();
        }
        const auto now = Clock::now();
        if (!is_outage(failure.kind)) {
            co_return false;
        }
        if (now >= options_.give_up) {
            failure.message += " (given up: " + options_.give_up_field + " is over)";
            co_return false;
        }
        if (options_.on_not_up) {
            options_.on_not_up(failure);
        }
        asio::steady_timer timer(co_await asio::this_coro::executor);
        const auto pause = probe_pause(++attempts_, failure.retry_after, options_.max_retry_after);
        timer.expires_at(std::min(options_.give_up, now + std::chrono::duration_cast<Clock::duration>(pause)));
        co_await timer.async_wait(asio::use_awaitable);
        co_return true;
    }

    /// What the server seems to be; requested once.
    asio::awaitable<std::string> look_once() {
        if (!seen_) {
            seen_ = co_await look_at_server(endpoint_, options_.request_deadline);
        }
        co_return *seen_;
    }

    TeacherEndpoint& endpoint_;
    EndpointProbeOptions options_;
    std::shared_ptr<const TokenBatch> tokens_;
    std::uint32_t attempts_ = 0;  ///< attempts that found it not to be up
    std::optional<std::string> seen_;
};

}  // namespace

std::chrono::nanoseconds probe_pause(std::uint32_t attempts, std::optional<std::chrono::milliseconds> retry_after,
                                     std::chrono::nanoseconds max_retry_after) noexcept {
    std::chrono::nanoseconds pause = kFirstPause;
    for (std::uint32_t i = 1; i < attempts && pause < kLastPause; ++i) {
        pause *= 2;
    }
    pause = std::min<std::chrono::nanoseconds>(pause, kLastPause);
    if (retry_after) {
        pause = std::max(pause, std::min<std::chrono::nanoseconds>(*retry_after, max_retry_after));
    }
    return pause;
}

asio::awaitable<FetchResult<EndpointProbe>> probe_endpoint(TeacherEndpoint& endpoint, EndpointProbeOptions options) {
    const bool of_samples = endpoint.settings().samples != nullptr;
    const bool larger = !of_samples && (options.batch_rows > 1 || options.batch_columns > kProbeColumns);
    const bool has_pair = options.batch_rows >= kAlignmentRows && options.batch_columns >= kAlignmentColumns;
    const auto request_deadline = options.request_deadline;
    EndpointDialogue dialogue(endpoint, std::move(options));
    auto negotiated = co_await endpoint.protocol().negotiate(dialogue, endpoint.settings().wanted());
    if (!negotiated) {
        FetchError failure = negotiated.error();
        if (failure.kind == FailureKind::rejected) {
            auto looking = look_at_server(endpoint, request_deadline);
            const std::string seen = co_await std::move(looking);
            // A server may reject a request that it understands, so another protocol is named only if the server seems
            // to speak it.
            failure.message += seen.starts_with(';') ? seen : "";
        }
        co_return failure;
    }
    const TargetsWanted wanted = endpoint.settings().wanted();
    if (const auto defect = normalisation_defect(negotiated->answer, wanted.vocabulary)) {
        co_return failed_probe(bad_rows(endpoint, *defect));
    }
    if (const auto defect = width_defect(negotiated->answer, wanted.top_k, wanted.vocabulary)) {
        co_return failed_probe(bad_rows(endpoint, *defect));
    }
    auto second = co_await dialogue.ask_again(negotiated->codec);
    if (!second) {
        co_return failed_probe(second.error());
    }
    if (larger) {
        auto whole = co_await dialogue.ask_whole_batch(negotiated->codec);
        if (whole && !has_pair) {
            whole = co_await dialogue.ask_pair(negotiated->codec);
        }
        if (!whole) {
            co_return failed_probe(whole.error());
        }
        auto look = [rows = std::move(whole->targets)] { return alignment_defect(rows); };
        const auto defect = co_await run_on(endpoint.settings().decode, std::move(look));
        if (defect) {
            co_return failed_probe(bad_rows(endpoint, *defect));
        }
    }
    endpoint.set_codec(std::move(negotiated->codec));
    EndpointProbe probe;
    probe.deterministic = same_targets(negotiated->answer, second->targets);
    probe.half_precision = looks_like_half_precision(negotiated->answer);
    probe.targets = std::move(negotiated->answer);
    probe.head = std::move(negotiated->head);
    probe.told = std::move(negotiated->told);
    probe.tokenizer = std::move(negotiated->tokenizer);
    probe.note = std::move(negotiated->note);
    co_return probe;
}

bool same_targets(const TeacherTargets& a, const TeacherTargets& b) {
    return a.kind == b.kind && a.width == b.width && same_bytes(a.ids, b.ids) && same_bytes(a.values, b.values) &&
           same_bytes(a.tail, b.tail) && same_bytes(a.loss_mask, b.loss_mask) &&
           std::ranges::equal(a.tensors, b.tensors, [](const SampleTensor& one, const SampleTensor& other) {
               return one.name == other.name && one.sample_shape == other.sample_shape &&
                      same_bytes(one.values, other.values);
           });
}

}  // namespace distilld
