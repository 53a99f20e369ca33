#include "server/sinks/registry.hpp"

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/url/pct_string_view.hpp>
#include <charconv>
#include <random>
#include <utility>

#include "base/ascii.hpp"
#include "pipeline/graph/steady_time.hpp"
#include "server/sinks/otlp_spans.hpp"
#include "server/sinks/sink_http.hpp"

namespace distilld::sinks {

namespace asio = boost::asio;
namespace json = boost::json;

namespace {

constexpr const char* kTraces = "/v1/traces";

/// Where spans go, and which setting names it.
struct Collector {
    std::string url;  ///< with /v1/traces; empty: spans are not sent
    std::string named_by;
};

std::string with_page(std::string url) {
    while (url.ends_with('/')) {
        url.pop_back();
    }
    return url.ends_with(kTraces) ? url : url + kTraces;
}

Collector collector_of(const SinkContext& context) {
    if (const std::string& url = context.spec.metrics.otlp_url; !url.empty()) {
        return {with_page(url.substr(0, url.find('?'))), "/metrics/otlp_url"};
    }
    if (std::string url = context.environment("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); !url.empty()) {
        return {std::move(url), "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"};
    }
    if (std::string url = context.environment("OTEL_EXPORTER_OTLP_ENDPOINT"); !url.empty()) {
        return {with_page(std::move(url)), "OTEL_EXPORTER_OTLP_ENDPOINT"};
    }
    return {};
}

/// A random id, so that each attempt gets its own.
std::uint64_t fresh_id() {
    std::random_device source;
    return std::max<std::uint64_t>((std::uint64_t{source()} << 32U) | source(), 1);
}

SpanTreeOptions tree_options(const SinkContext& context) {
    SpanTreeOptions options;
    options.trace_seed[0] = fresh_id();
    options.trace_seed[1] = fresh_id();
    options.first_step = context.first_step;
    options.steps = context.steps;
    options.unix_offset =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()) -
        steady_now().time_since_epoch();
    return options;
}

/// A collector that accepted only some spans tells how many it rejected.
Written written(const json::object& answer) {
    Written done;
    const auto* partial = answer.if_contains("partialSuccess");
    const auto* object = partial != nullptr ? partial->if_object() : nullptr;
    if (object == nullptr) {
        return done;
    }
    if (const auto* rejected = object->if_contains("rejectedSpans"); rejected != nullptr && rejected->is_string()) {
        const json::string& text = rejected->get_string();
        std::from_chars(text.data(), text.data() + text.size(), done.refused);
    } else if (rejected != nullptr && rejected->is_number()) {
        boost::system::error_code inexact;
        done.refused = rejected->to_number<std::uint64_t>(inexact);
    }
    if (const auto* why = object->if_contains("errorMessage"); why != nullptr && why->is_string()) {
        done.why = std::string(why->get_string());
    }
    return done;
}

/// OTLP defines which answers may be retried; 500 is not one of them.
SinkFailure otlp_failure(const HttpReply& reply) {
    SinkFailure failure = failure_of(reply);
    failure.for_good = reply.status != 0 && reply.status != 429 && (reply.status < 502 || reply.status > 504);
    return failure;
}

class OtlpSink final : public Sink {
  public:
    OtlpSink(const SinkContext& context, std::unique_ptr<SinkHttp> http)
        : tree_(tree_options(context)), job_name_(context.spec.name), job_id_(context.job_id), http_(std::move(http)) {}

    asio::awaitable<WriteResult> write(const std::vector<SinkItem>& items) override {
        json::array spans = tree_.spans_of(items);
        if (spans.empty()) {
            co_return Written();
        }
        const HttpReply reply = co_await http_->post("", otlp_request(std::move(spans), job_name_, job_id_));
        if (!reply.ok()) {
            co_return otlp_failure(reply);
        }
        tree_.sent();
        co_return written(reply.body);
    }

  private:
    SpanTree tree_;
    std::string job_name_;
    std::string job_id_;
    std::unique_ptr<SinkHttp> http_;
};

}  // namespace

std::vector<HttpHeader> read_otlp_headers(const std::string& text) {
    std::vector<HttpHeader> headers;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string_view pair = std::string_view(text).substr(begin, end - begin);
        const std::size_t equals = pair.find('=');
        begin = end + 1;
        if (equals == std::string_view::npos) {
            continue;
        }
        const std::string name(trimmed(pair.substr(0, equals), " "));
        const std::string stated(trimmed(pair.substr(equals + 1), " "));
        const auto encoded = boost::urls::make_pct_string_view(stated);
        if (name.empty() || !encoded) {
            continue;
        }
        const std::string value = encoded->decode();
        const auto is_control = [](unsigned char letter) { return letter < 0x20 || letter == 0x7F; };
        if (std::ranges::none_of(name, is_control) && std::ranges::none_of(value, is_control)) {
            headers.push_back({name, value});
        }
    }
    return headers;
}

Result<std::unique_ptr<Sink>> make_otlp_sink(const SinkContext& context, asio::any_io_executor thread) {
    Collector collector = collector_of(context);
    if (collector.url.empty()) {
        return std::unique_ptr<Sink>();
    }
    std::string headers = context.environment("OTEL_EXPORTER_OTLP_TRACES_HEADERS");
    if (headers.empty()) {
        headers = context.environment("OTEL_EXPORTER_OTLP_HEADERS");
    }
    SinkHttpOptions options;
    options.field = std::move(collector.named_by);
    options.url = std::move(collector.url);
    options.headers = read_otlp_headers(headers);
    Result<std::unique_ptr<SinkHttp>> http = make_sink_http(std::move(thread), std::move(options));
    if (!http) {
        return http.error();
    }
    return std::unique_ptr<Sink>(std::make_unique<OtlpSink>(context, std::move(*http)));
}

}  // namespace distilld::sinks
