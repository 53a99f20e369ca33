#include "net/http_failure.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <charconv>
#include <cmath>
#include <iterator>

#include "base/ascii.hpp"
#include "base/json_text.hpp"
#include "base/utf8.hpp"

namespace distilld {
namespace {

constexpr std::size_t kMaxTextBytes = 300;
constexpr const char* kNotReadyWords[] = {
    "not ready", "unknown model", "not found", "does not exist", "no available versions", "not loaded", "is loading"};

/// "body.inputs: Field required (reason)": how FastAPI's servers report a field; empty if not of that form.
std::optional<std::string> field_message(const boost::json::object& object) {
    const auto* words = object.if_contains("msg");
    const auto* place = object.if_contains("loc");
    if (words == nullptr || !words->is_string() || place == nullptr || !place->is_array()) {
        return std::nullopt;
    }
    std::string text;
    for (const boost::json::value& step : place->get_array()) {
        text += text.empty() ? "" : ".";
        text += step.is_string() ? std::string(step.get_string()) : to_text(step);
    }
    text += (text.empty() ? "" : ": ") + std::string(words->get_string());
    const auto* context = object.if_contains("ctx");
    const auto* details = context == nullptr ? nullptr : context->if_object();
    const auto* reason = details == nullptr ? nullptr : details->if_contains("error");
    return reason != nullptr && reason->is_string() ? text + " (" + std::string(reason->get_string()) + ")" : text;
}

/// The first string in the places where servers put their message.
std::optional<std::string> message_in(const boost::json::value& value) {
    if (const auto* text = value.if_string()) {
        return text->empty() ? std::nullopt : std::optional(std::string(*text));
    }
    if (const auto* object = value.if_object()) {
        if (auto text = field_message(*object)) {
            return text;
        }
        for (const char* key : {"error", "message", "error_message", "detail", "msg", "title", "type"}) {
            if (const auto* inner = object->if_contains(key)) {
                if (auto text = message_in(*inner)) {
                    return text;
                }
            }
        }
        return std::nullopt;
    }
    if (const auto* array = value.if_array(); array != nullptr && !array->empty()) {
        return message_in(array->front());
    }
    return std::nullopt;
}

/// A server's traceback without the calls in between: its beginning, and the exception at its end.
std::string without_traceback(std::string text) {
    constexpr std::string_view kTraceback = "Traceback (most recent call last):";
    const std::size_t begin = text.find(kTraceback);
    if (begin == std::string::npos) {
        return text;
    }
    // The exception is the last line that is not indented, up to the next blank line.
    std::string_view rest = std::string_view(text).substr(begin + kTraceback.size());
    std::string_view exception;
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find('\n'), rest.size());
        const std::string_view line = rest.substr(0, end);
        if (!line.empty() && line.front() != ' ') {
            exception = line;
        } else if (line.empty() && !exception.empty()) {
            break;
        }
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return exception.empty() ? text : text.substr(0, begin) + std::string(exception);
}

/// Whether the text of a 400 means that the model is not there (yet), as MLServer and older Tritons report a 404, and
/// SGLang an adapter that was not loaded since its start.
bool says_not_ready(std::string_view text) {
    const std::string lower = ascii_lower(text);
    const auto says = [&lower](const char* words) { return lower.find(words) != std::string::npos; };
    return says("adapter that has never been loaded") ||
           (says("model") && std::any_of(std::begin(kNotReadyWords), std::end(kNotReadyWords), says));
}

/// `distilld teacher` names the model that it has; the requested one will not come.
bool names_another_model(std::string_view text) {
    return text.find("this server has '") != std::string_view::npos;
}

FailureKind kind_of_status(unsigned status, std::string_view text) {
    switch (status) {
        case 429:
        case 503:
            return FailureKind::overloaded;
        case 502:
            return FailureKind::connection;
        case 504:
            return FailureKind::timeout;
        case 404:
            return names_another_model(text) ? FailureKind::rejected : FailureKind::not_found;
        case 400:
            return says_not_ready(text) ? FailureKind::not_found : FailureKind::rejected;
        case 408:
            return FailureKind::server_error;
        case 501:
            return FailureKind::rejected;  // what the server cannot do, it cannot do on a retry either
        default:
            return status >= 500 ? FailureKind::server_error : FailureKind::rejected;
    }
}

}  // namespace

std::string error_text(std::string_view body) {
    std::string text = to_valid_utf8(body);  // a server's text may be in any encoding, and goes into JSON from here
    boost::system::error_code failed;
    const auto value = boost::json::parse(text, failed);
    if (!failed) {
        text = without_traceback(message_in(value).value_or(text));
    }
    for (char& letter : text) {
        if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F) {
            letter = ' ';
        }
    }
    text = std::string(trimmed(text, " "));
    if (text.size() > kMaxTextBytes) {
        text.resize(cut_utf8(text, kMaxTextBytes - 3).size());
        text += "...";
    }
    return text;
}

std::optional<std::time_t> parse_http_date(std::string_view value) {
    const std::string text(value);
    std::tm parts{};
    const char* end = ::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    if (end == nullptr || *end != '\0') {
        return std::nullopt;
    }
    return ::timegm(&parts);
}

std::optional<std::chrono::milliseconds> parse_retry_after(std::string_view value, std::time_t now) {
    constexpr double kMaxSeconds = 24 * 3600;
    double seconds = 0;
    const auto number = std::from_chars(value.data(), value.data() + value.size(), seconds);
    if (number.ec == std::errc{} && number.ptr == value.data() + value.size() && std::isfinite(seconds)) {
        if (seconds < 0) {
            return std::nullopt;
        }
    } else if (const auto date = parse_http_date(value)) {
        seconds = std::max(0.0, std::difftime(*date, now));
    } else {
        return std::nullopt;
    }
    return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(seconds, kMaxSeconds) * 1000.0));
}

FetchError failure_of_status(const std::string& endpoint, const HttpResponse& response) {
    const std::string text = error_text(body_text(response));
    FetchError failure;
    failure.kind = kind_of_status(response.status, text);
    if (failure.kind != FailureKind::rejected) {
        failure.retry_after = response.retry_after;
    }
    failure.message = endpoint + ": HTTP " + std::to_string(response.status) + (text.empty() ? "" : ": " + text);
    if (response.status == 404 && failure.kind == FailureKind::rejected) {
        failure.message += " (see /teacher/model)";
    }
    if (response.status == 401 || response.status == 403) {
        failure.message += " (the key comes from /teacher/api_key_env or /teacher/api_key_file)";
    }
    return failure;
}

}  // namespace distilld
