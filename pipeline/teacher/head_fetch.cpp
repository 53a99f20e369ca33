#include "pipeline/teacher/head_fetch.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "net/http_failure.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/teacher/probe/endpoint_probe.hpp"
#include "pipeline/teacher/probe/teacher_fingerprint.hpp"
#include "pipeline/teacher/teacher_head.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kPartialContent = 206;
constexpr const char* kContentRange = "Content-Range";
constexpr const char* kEtag = "ETag";

struct ContentRange {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::uint64_t size = 0;
};

bool read_number(std::string_view& text, std::uint64_t& value) {
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(static_cast<std::size_t>(parsed.ptr - text.data()));
    return parsed.ec == std::errc();
}

bool read_text(std::string_view& text, std::string_view expected) {
    if (!text.starts_with(expected)) {
        return false;
    }
    text.remove_prefix(expected.size());
    return true;
}

/// "bytes FIRST-LAST/SIZE".
std::optional<ContentRange> parse_content_range(std::string_view text) {
    ContentRange range;
    const bool whole = read_text(text, "bytes ") && read_number(text, range.first) && read_text(text, "-") &&
                       read_number(text, range.last) && read_text(text, "/") && read_number(text, range.size);
    return whole && text.empty() && range.first <= range.last && range.last < range.size ? std::optional(range)
                                                                                         : std::nullopt;
}

/// A head that reproduces the teacher's own answer from the hidden states of the probe's tokens.
struct ProvenHead {
    std::shared_ptr<const TeacherHead> head;
    std::string fingerprint;       ///< fingerprint of the resulting rows, as for logits
    std::uint64_t file_bytes = 0;  ///< size of its file
};

/// Assembles a file from pieces.
class Assembly {
  public:
    Assembly(std::string page, HeadOffer offer, const HeadFetchOptions& options)
        : page_(std::move(page)), offer_(std::move(offer)), options_(options) {}

    [[nodiscard]] bool is_whole() const noexcept { return size_ && file_->size() == *size_; }
    [[nodiscard]] const std::shared_ptr<BodyBuffer>& file() const noexcept { return file_; }

    [[nodiscard]] HttpRequest next_request() const {
        HttpRequest request = make_get(offer_.target);
        const std::uint64_t first = file_->size();
        request.headers.push_back(
            {"Range", "bytes=" + std::to_string(first) + "-" + std::to_string(first + options_.piece_bytes - 1)});
        request.answer_headers = {kContentRange, kEtag};
        request.response_limit = options_.max_bytes;
        return request;
    }

    FetchResult<void> add(const HttpResponse& response) {
        if (!is_success(response)) {
            return failure_of_status(page_, response);
        }
        if (const std::string* etag = response.header(kEtag);
            etag != nullptr && etag->find(offer_.sha256) == std::string::npos) {
            return bad("the head has changed: its ETag is " + *etag + ", announced was " + offer_.sha256);
        }
        if (response.status != kPartialContent) {
            // A server without range support sends the whole file.
            file_ = response.body ? response.body : std::make_shared<BodyBuffer>();
            size_ = file_->size();
            return {};
        }
        const std::string* text = response.header(kContentRange);
        const auto range = text == nullptr ? std::nullopt : parse_content_range(*text);
        const std::size_t bytes = response.body ? response.body->size() : 0;
        if (!range || range->first != file_->size() || range->last - range->first + 1 != bytes ||
            (size_ && range->size != *size_)) {
            return bad("a part of the head is not the one that was requested (Content-Range: " +
                       (text == nullptr ? "none" : *text) + ")");
        }
        if (range->size > options_.max_bytes) {
            return bad("the head would take " + std::to_string(range->size) + " bytes");
        }
        size_ = range->size;
        const std::size_t begin = file_->size();
        file_->reserve(*size_);
        file_->resize(begin + bytes);
        std::memcpy(file_->data() + begin, response.body->data(), bytes);
        return {};
    }

  private:
    [[nodiscard]] FetchError bad(const std::string& what) const {
        return {FailureKind::bad_response, page_ + ": " + what, std::nullopt};
    }

    std::string page_;
    HeadOffer offer_;
    HeadFetchOptions options_;
    std::shared_ptr<BodyBuffer> file_ = std::make_shared<BodyBuffer>();
    std::optional<std::uint64_t> size_;
};

Result<ProvenHead> prove(const std::shared_ptr<BodyBuffer>& file, const std::string& sha256,
                         const TeacherTargets& hidden, const std::optional<TeacherTargets>& told) {
    auto head = read_head_file(file->bytes(), sha256, file);
    if (!head) {
        return head.error();
    }
    const auto logits = project_few(hidden, *head);
    if (!logits) {
        return logits.error();
    }
    ProvenHead proven;
    proven.file_bytes = file->size();
    proven.fingerprint = teacher_fingerprint(*logits);
    if (told && !same_teacher(proven.fingerprint, teacher_fingerprint(*told))) {
        return teacher_error(
            "the head yields other log-probabilities than the teacher reports: the hidden states are not those after "
            "the last norm, or this is not the teacher's head");
    }
    proven.head = std::make_shared<const TeacherHead>(std::move(*head));
    return proven;
}

/// Fetches the head of an endpoint, in ranges if its server supports them. Checks its SHA-256, its width against
/// `hidden` (the endpoint's answer to the probe's tokens), and its logits for `hidden` against `told`, the teacher's
/// own rows, if given. The head stays in memory as sent. Runs on the endpoint's executor, the checks on the decode
/// executor. Throws operation_aborted when cancelled.
asio::awaitable<FetchResult<ProvenHead>> fetch_head(TeacherEndpoint& endpoint, HeadOffer offer, TeacherTargets hidden,
                                                    std::optional<TeacherTargets> told, HeadFetchOptions options) {
    const std::string page = endpoint.page(offer.target);
    Assembly assembly(page, offer, options);
    for (std::uint32_t attempts = 0; !assembly.is_whole();) {
        const auto response = co_await endpoint.send(assembly.next_request(), options.request_deadline);
        const FetchResult<void> added = response ? assembly.add(*response) : FetchResult<void>(response.error());
        if (added) {
            attempts = 0;
            continue;
        }
        const auto now = Clock::now();
        if (!is_outage(added.error().kind) || now >= options.give_up) {
            co_return added.error();
        }
        asio::steady_timer timer(co_await asio::this_coro::executor);
        const auto pause = probe_pause(++attempts, added.error().retry_after, std::chrono::seconds(60));
        timer.expires_at(std::min(options.give_up, now + std::chrono::duration_cast<Clock::duration>(pause)));
        co_await timer.async_wait(asio::use_awaitable);
    }
    auto work = [file = assembly.file(), sha256 = offer.sha256, hidden = std::move(hidden), told = std::move(told)] {
        return prove(file, sha256, hidden, told);
    };
    auto proven = co_await run_on(endpoint.settings().decode, std::move(work));
    if (!proven) {
        co_return FetchError{FailureKind::bad_response, page + ": " + proven.error().message, std::nullopt};
    }
    co_return std::move(*proven);
}

}  // namespace

asio::awaitable<Result<void>> HeadTaking::take(std::vector<TeacherEndpoint*> endpoints, const EndpointProbe& first,
                                               HeadFetchOptions options, TeacherInfo& info) {
    if (given_ && given_->sha256 == first.head->sha256) {
        info.fingerprint = given_->fingerprint;
        info.vocabulary_size = given_->rows;
        co_return Result<void>();
    }
    const auto began = std::chrono::steady_clock::now();
    std::string failures;
    for (TeacherEndpoint* endpoint : endpoints) {
        auto proven = co_await fetch_head(*endpoint, *first.head, first.targets, first.told, options);
        if (proven) {
            given_ = Given{proven->head->sha256, proven->fingerprint, proven->head->rows};
            info.vocabulary_size = proven->head->rows;
            info.head = std::move(proven->head);
            info.fingerprint = std::move(proven->fingerprint);
            counters_.bytes += proven->file_bytes;
            counters_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
            co_return Result<void>();
        }
        failures += (failures.empty() ? "" : "; ") + proven.error().message;
    }
    co_return teacher_error("cannot fetch the teacher's head: " + failures);
}

}  // namespace distilld
