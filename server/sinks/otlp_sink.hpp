#pragma once

#include <string>
#include <vector>

#include "pipeline/teacher/transport/http_message.hpp"
#include "server/sinks/sink.hpp"

namespace distilld::sinks {

/// metrics.otlp_url, or as OpenTelemetry's own environment variables say: the spans of the stages, to a collector, as
/// OTLP over HTTP with JSON.
[[nodiscard]] Result<std::unique_ptr<Sink>> make_otlp_sink(const SinkContext& context,
                                                           boost::asio::any_io_executor thread);

/// The headers in OTEL_EXPORTER_OTLP_HEADERS: "name=value,name=value", the values percent-encoded. What is none is left
/// out.
[[nodiscard]] std::vector<HttpHeader> read_otlp_headers(const std::string& text);

}  // namespace distilld::sinks
