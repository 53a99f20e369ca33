#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace distilld::cli {

/// One server-sent event.
struct SseEvent {
    std::string type = "message";
    std::string data;
    std::string id;  ///< the last id so far
};

/// Parses server-sent events from a stream cut anywhere (HTML standard §9.2.6). Drops comments. Handles a carriage
/// return only before a line feed, which is all that our service sends.
class SseParser {
  public:
    using Handler = std::function<void(const SseEvent&)>;
    explicit SseParser(Handler on_event) : on_event_(std::move(on_event)) {}

    /// Throws std::length_error when one event is larger than kLimit.
    void feed(std::string_view bytes);

    static constexpr std::size_t kLimit = 16U << 20;

  private:
    void line(std::string_view text);

    Handler on_event_;
    std::string rest_;  ///< of a line
    SseEvent event_;
    bool has_data_ = false;
};

}  // namespace distilld::cli
