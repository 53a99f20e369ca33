#include "pipeline/teacher/replicas.hpp"

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <exception>
#include <stdexcept>
#include <utility>

#include "base/time.hpp"
#include "pipeline/async/abort.hpp"
#include "pipeline/async/deadline.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/core/choice_of_targets.hpp"
#include "pipeline/core/target_rows.hpp"
#include "pipeline/teacher/probe/teacher_fingerprint.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

using Clock = std::chrono::steady_clock;

/// Once an endpoint has passed, endpoints that have not been found down get as long again as it took, within these
/// limits. So the order of the list decides, not which endpoint is faster.
constexpr std::chrono::nanoseconds kMinHearing = std::chrono::milliseconds(500);
constexpr std::chrono::nanoseconds kMaxHearing = std::chrono::seconds(2);

/// Why `other` is not a replica of the run's first endpoint: another form, another head, or answers that differ by more
/// than rounding.
std::optional<std::string> unlike_peer(const std::string& first_name, const EndpointProbe& first,
                                       const EndpointProbe& other) {
    const TeacherTargets& known = first.targets;
    const TeacherTargets& answer = other.targets;
    if (known.kind != answer.kind || known.width != answer.width) {
        return "answers rows of " + std::to_string(answer.width) + " values, not of " + std::to_string(known.width) +
               " as " + first_name;
    }
    if (known.vocabulary != 0 && answer.vocabulary != 0 && known.vocabulary != answer.vocabulary) {
        return "knows " + std::to_string(answer.vocabulary) + " tokens, not " + std::to_string(known.vocabulary) +
               " as " + first_name;
    }
    if (compare(first.tokenizer, other.tokenizer) == TokenizersAre::different) {
        return "has another tokenizer than " + first_name;
    }
    if (first.head && other.head && first.head->sha256 != other.head->sha256) {
        return "has another head (SHA-256 " + other.head->sha256 + ", not " + first.head->sha256 + ") than " +
               first_name;
    }
    if (const AnswerDifference difference = difference_of(known, answer); difference.of_other_models()) {
        return "does not serve the model of " + first_name + ": " + difference.text(known.kind);
    }
    return std::nullopt;
}

/// One line for the log.
std::string describe_teacher(const TeacherEndpoint& front, std::size_t endpoints, const TeacherInfo& info,
                             bool replicas_agree) {
    std::string text = front.name();
    if (endpoints > 1) {
        text += " and " + std::to_string(endpoints - 1) + " more";
    }
    if (!info.absent.empty()) {
        text += " (" + std::to_string(info.absent.size()) + " not up yet)";
    }
    if (!info.refused.empty()) {
        text += " (" + std::to_string(info.refused.size()) + " left out)";
    }
    text += ": " + front.codec()->description();
    if (info.top_k == 0 && info.vocabulary_size != 0) {
        text += ", vocabulary " + std::to_string(info.vocabulary_size);
    }
    text += info.deterministic ? "" : ", answers differ from one request to the next";
    text += replicas_agree ? "" : ", endpoints answer differently";
    return text;
}

/// The last errors of the first few endpoints that are not up. Empty texts belong to other endpoints.
std::string waited_for(const std::vector<std::string>& said) {
    constexpr std::size_t kMaxNamed = 3;
    std::string text;
    std::size_t waiting = 0;
    for (const std::string& one : said) {
        if (!one.empty() && ++waiting <= kMaxNamed) {
            text += (text.empty() ? "" : "; ") + one;
        }
    }
    return text + (waiting > kMaxNamed ? "; and " + std::to_string(waiting - kMaxNamed) + " more" : "");
}

}  // namespace

Replicas::Replicas(asio::any_io_executor io, const RemoteTeacherOptions& options,
                   std::shared_ptr<TeacherSettings> settings)
    : io_(std::move(io)), options_(options), settings_(std::move(settings)), joined_(io_) {}

void Replicas::add(std::unique_ptr<TeacherEndpoint> endpoint, std::shared_ptr<const TrafficCounters> traffic) {
    Replica& replica = replicas_.emplace_back();
    replica.at = std::move(endpoint);
    replica.traffic = std::move(traffic);
}

std::vector<TeacherEndpoint*> Replicas::taking_part() const {
    std::vector<TeacherEndpoint*> up;
    for (const Replica& replica : replicas_) {
        if (!replica.absent) {
            up.push_back(replica.at.get());
        }
    }
    return up;
}

asio::awaitable<Result<TeacherInfo>> Replicas::probe() {
    waiting_for_.clear();
    for (Replica& replica : replicas_) {
        replica.not_up.clear();
    }
    Probed probed(replicas_.size());
    std::exception_ptr thrown;
    try {
        co_await probe_all(probed);
    } catch (...) {
        thrown = std::current_exception();
    }
    if (thrown) {
        std::rethrow_exception(thrown);
    }
    if (std::any_of(probed.begin(), probed.end(), passed)) {
        stop_waiting();
    }
    co_return sum_up(probed);
}

EndpointProbeOptions Replicas::probe_options(std::chrono::nanoseconds timeout) const {
    EndpointProbeOptions options;
    options.request_deadline = std::chrono::nanoseconds(from_seconds(settings_->spec.timeout_secs));
    options.give_up = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
    if (settings_->spec.startup_timeout_secs) {
        options.give_up_field = "/teacher/startup_timeout_secs";
    }
    options.max_retry_after = options_.max_retry_after;
    options.batch_rows = options_.batch_rows;
    options.batch_columns = options_.batch_columns;
    return options;
}

/// Reports what the probe waits for, if that has changed.
void Replicas::report_waiting(const Probed& probed) {
    if (!options_.on_waiting || std::any_of(probed.begin(), probed.end(), passed)) {
        return;
    }
    std::vector<std::string> said;
    for (const Replica& replica : replicas_) {
        said.push_back(replica.not_up);
    }
    const std::string text = waited_for(said);
    if (text != waiting_for_) {
        waiting_for_ = text;
        options_.on_waiting(text);
    }
}

void Replicas::stop_waiting() {
    if (!std::exchange(waiting_for_, {}).empty()) {
        options_.on_waiting({});
    }
}

asio::awaitable<void> Replicas::probe_one(std::size_t index, Probed& probed, Condition& changed) {
    EndpointProbeOptions options = probe_options(options_.start_deadline);
    options.on_not_up = [this, index, &probed, &changed](const FetchError& failure) {
        replicas_[index].not_up = failure.message;
        report_waiting(probed);
        changed.notify();
    };
    auto probing = probe_endpoint(*replicas_[index].at, std::move(options));
    try {
        probed[index] = co_await std::move(probing);
    } catch (const boost::system::system_error& failure) {
        if (is_abort(failure.code())) {
            throw;
        }
        probed[index] =
            FetchError{FailureKind::bad_response, replicas_[index].at->name() + ": " + failure.what(), std::nullopt};
    }
    if (const auto& answer = *probed[index]; !answer && !is_outage(answer.error().kind)) {
        replicas_[index].not_up.clear();  // the probe no longer waits for it
    }
    changed.notify();
}

/// Whether any endpoint has neither answered nor been found down.
bool Replicas::hears(const Probed& probed) const {
    for (std::size_t i = 0; i < probed.size(); ++i) {
        if (!probed[i] && replicas_[i].not_up.empty()) {
            return true;
        }
    }
    return false;
}

asio::awaitable<void> Replicas::probe_all(Probed& probed) {
    const Clock::time_point began = Clock::now();
    TaskGroup group(io_);
    Condition changed(io_);
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
        if (!group.spawn(probe_one(i, probed, changed))) {
            throw std::logic_error("the probe's task group is closed");
        }
    }
    const auto known = [](const auto& one) { return one.has_value(); };
    // Tasks refer to locals, so they are joined even if the caller is cancelled.
    const bool throwing = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    std::exception_ptr thrown;
    try {
        while (std::none_of(probed.begin(), probed.end(), passed) &&
               !std::all_of(probed.begin(), probed.end(), known)) {
            co_await changed.wait();
        }
        const auto took = std::clamp<std::chrono::nanoseconds>(Clock::now() - began, kMinHearing, kMaxHearing);
        const auto heard_out = Clock::now() + std::chrono::duration_cast<Clock::duration>(took);
        while (hears(probed) && Clock::now() < heard_out) {
            co_await changed.wait(heard_out);
        }
    } catch (...) {
        thrown = std::current_exception();
    }
    group.cancel();
    co_await group.join();
    co_await asio::this_coro::throw_if_cancelled(throwing);
    if (thrown) {
        std::rethrow_exception(thrown);
    }
}

Result<TeacherInfo> Replicas::sum_up(Probed& probed) {
    TeacherInfo info;
    const TeacherEndpoint* front = nullptr;
    bool replicas_agree = true;
    std::vector<std::string> refusals;
    std::vector<std::string> silences;
    for (std::size_t i = 0; i < probed.size(); ++i) {
        Replica& replica = replicas_[i];
        replica.absent = true;
        if (!probed[i]) {
            info.absent.push_back(i);
            silences.push_back(replica.not_up.empty() ? replica.at->name() + ": no answer" : replica.not_up);
            continue;
        }
        if (!*probed[i]) {
            const bool refused = !is_outage(probed[i]->error().kind);
            (refused ? info.refused : info.absent).push_back(i);
            (refused ? refusals : silences).push_back(probed[i]->error().message);
            continue;
        }
        EndpointProbe& probe = **probed[i];
        const bool half_precision = probe.half_precision;
        const bool deterministic = probe.deterministic;
        if (front == nullptr) {
            front = replica.at.get();
            reference_ = std::move(probe);
            reference_name_ = front->name();
        } else if (const auto difference = unlike_peer(reference_name_, *reference_, probe)) {
            info.refused.push_back(i);
            refusals.push_back(replica.at->name() + ": " + *difference);
            continue;
        } else {
            replicas_agree = replicas_agree && same_targets(reference_->targets, probe.targets);
        }
        replica.absent = false;
        info.deterministic = info.deterministic && deterministic;
        warn_of_half_precision(replica, half_precision);
    }
    if (front == nullptr) {
        return teacher_error(refusals.empty() ? silences.front() : refusals.front());
    }
    for (const std::string& refusal : refusals) {
        warn(refusal + "; the job continues without this endpoint");
    }
    const TeacherTargets& answer = reference_->targets;
    info.kind = answer.kind;
    info.tensors = without_values(answer.tensors);
    info.width = answer.width;
    info.top_k = answer.kind == TeacherTargets::Kind::topk ? answer.width : 0;
    info.vocabulary_size = answer.kind == TeacherTargets::Kind::logits ? answer.width : answer.vocabulary;
    settings_->logits = answer.kind == TeacherTargets::Kind::logits ? answer.width : 0;
    info.tokenizer = reference_->tokenizer;
    if (!reference_->note.empty()) {
        info.notes.push_back(front->name() + ": " + reference_->note);
    }
    if (settings_->spec.targets == TargetsChoice::automatic) {
        settings_->spec.targets = choice_of(info.kind);  // endpoints that join later are asked for the same
    }
    info.description = describe_teacher(*front, replicas_.size(), info, replicas_agree);
    info.fingerprint = teacher_fingerprint(answer);
    info.deterministic = info.deterministic && replicas_agree;
    reproducible_ = info.deterministic;
    return info;
}

void Replicas::warn(const std::string& text) const {
    if (options_.on_warning) {
        options_.on_warning(text);
    }
}

void Replicas::warn_of_half_precision(const Replica& replica, bool half_precision) const {
    if (half_precision) {
        warn(replica.at->name() + ": its rows seem to be computed in bf16 or fp16; a server in float32 is exact");
    }
}

std::optional<std::size_t> Replicas::second_for(std::size_t asked, std::uint64_t micro_batch) const {
    if (!is_compared(micro_batch)) {
        return std::nullopt;
    }
    const std::size_t others = replicas_.size() - 1;
    for (std::size_t i = 0; i < others; ++i) {
        const std::size_t turn = (micro_batch / kComparedEvery + i) % others;
        const std::size_t second = (asked + 1 + turn) % replicas_.size();
        if (!replicas_[second].absent) {
            return second;
        }
    }
    return std::nullopt;
}

void Replicas::part(const ReplicaDifference& found) {
    Replica& asked = replicas_[found.asked];
    Replica& second = replicas_[found.second];
    asked.absent = true;
    second.absent = true;
    reproducible_ = false;
    warn(asked.at->name() + " and " + second.at->name() + " do not serve the same model: in micro-batch " +
         std::to_string(found.micro_batch) + ", " + found.text +
         "; the one that no longer answers as at the start is left out; its answers since the last comparison "
         "may be in the weights");
}

asio::awaitable<FetchResult<void>> Replicas::join(std::size_t index, std::chrono::nanoseconds deadline) {
    Replica& replica = replicas_.at(index);
    if (!replica.absent) {
        co_return FetchResult<void>();
    }
    const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(deadline);
    if (replica.joining) {
        while (replica.joining && Clock::now() < until) {
            co_await joined_.wait(until);
        }
        if (!replica.absent) {
            co_return FetchResult<void>();
        }
        const FetchError unknown{FailureKind::timeout, replica.at->name() + ": no answer to the probe in time",
                                 std::nullopt};
        co_return replica.not_joined.value_or(unknown);
    }
    struct Mark {
        bool& joining;
        Condition& joined;
        ~Mark() {
            joining = false;
            joined.notify();
        }
    };
    replica.joining = true;
    replica.not_joined.reset();
    const Mark mark{replica.joining, joined_};
    auto probing = probe_endpoint(*replica.at, probe_options({}));
    auto probed = co_await with_deadline(std::move(probing), deadline);
    if (!probed) {
        replica.not_joined =
            FetchError{FailureKind::timeout, replica.at->name() + ": no answer to the probe in time", std::nullopt};
    } else if (!*probed) {
        // The endpoint may be repaired and return, so even a refusal does not end the job.
        const FetchError& error = probed->error();
        replica.not_joined = FetchError{is_outage(error.kind) ? error.kind : FailureKind::bad_response, error.message,
                                        error.retry_after};
    } else if (const auto difference = unlike_peer(reference_name_, *reference_, **probed)) {
        // The endpoint does not serve the run's model: treated like a model that is still being loaded.
        replica.not_joined = FetchError{FailureKind::not_found, replica.at->name() + ": " + *difference, std::nullopt};
    }
    if (replica.not_joined) {
        co_return *replica.not_joined;
    }
    replica.absent = false;
    warn_of_half_precision(replica, (*probed)->half_precision);
    const bool agrees = (*probed)->deterministic && same_targets(reference_->targets, (*probed)->targets);
    if (reproducible_ && !agrees) {
        reproducible_ = false;
        warn(replica.at->name() +
             ": joined late and answers differently from its peers: weights will not be reproducible bit for bit");
    }
    co_return FetchResult<void>();
}

}  // namespace distilld
