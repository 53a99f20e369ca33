#include "pipeline/teacher/transport/http_failure.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>

#include "base/utf8.hpp"

namespace distilld {
namespace {

constexpr std::size_t kMaxTextBytes = 300;
constexpr const char* kNotReadyWords[] = {
    "not ready", "unknown model", "not found", "does not exist", "no available versions", "not loaded", "is loading"};

/// The first string in the places where servers put their message.
std::optional<std::string> message_in(const boost::json::value& value) {
    if (const auto* text = value.if_string()) {
        return std::string(*text);
    }
    if (const auto* object = value.if_object()) {
        for (const char* key : {"error", "message", "detail", "msg", "title"}) {
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

/// Whether the words of a 400 say that the model is not there (yet): MLServer's and older Tritons' way to say 404.
bool says_not_ready(std::string_view text) {
    std::string lower(text);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return lower.find("model") != std::string::npos &&
           std::any_of(std::begin(kNotReadyWords), std::end(kNotReadyWords),
                       [&](const char* words) { return lower.find(words) != std::string::npos; });
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
            return FailureKind::not_found;
        case 400:
            return says_not_ready(text) ? FailureKind::not_found : FailureKind::rejected;
        case 408:
            return FailureKind::server_error;
        default:
            return status >= 500 ? FailureKind::server_error : FailureKind::rejected;
    }
}

}  // namespace

std::string error_text(std::string_view body) {
    std::string text = to_valid_utf8(body);  // what a server says may be in any code, and goes into JSON from here
    boost::system::error_code failed;
    const auto value = boost::json::parse(text, failed);
    if (!failed) {
        text = message_in(value).value_or(text);
    }
    for (char& letter : text) {
        if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F) {
            letter = ' ';
        }
    }
    const auto first = text.find_first_not_of(' ');
    text.erase(0, std::min(first, text.size()));
    text.erase(text.find_last_not_of(' ') + 1);
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
    if (response.status == 401 || response.status == 403) {
        failure.message += " (the key comes from /teacher/api_key_env)";
    }
    return failure;
}

}  // namespace distilld
