#include "server/support/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <boost/json/object.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>

#include "base/json_text.hpp"
#include "base/utf8.hpp"

namespace distilld::log {

namespace {

spdlog::level::level_enum to_spdlog(Level level) {
    switch (level) {
        case Level::debug:
            return spdlog::level::debug;
        case Level::info:
            return spdlog::level::info;
        case Level::warn:
            return spdlog::level::warn;
        case Level::error:
            return spdlog::level::err;
    }
    return spdlog::level::info;
}

/// RFC 3339 in UTC, with milliseconds.
std::string time_text(std::chrono::system_clock::time_point time) {
    const auto since_epoch = std::chrono::floor<std::chrono::milliseconds>(time.time_since_epoch());
    const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(since_epoch).count();
    std::tm parts{};
    ::gmtime_r(&seconds, &parts);
    std::array<char, 32> text{};
    const auto size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    std::array<char, 8> fraction{};
    std::snprintf(fraction.data(), fraction.size(), ".%03dZ", static_cast<int>(since_epoch.count() % 1000));
    return std::string(text.data(), size) + fraction.data();
}

std::string json_line(Level level, std::string_view component, std::string_view message) {
    return to_text(boost::json::object{{"time", time_text(std::chrono::system_clock::now())},
                                       {"level", name_of(kLevelNames, level)},
                                       {"component", component},
                                       {"message", message}});
}

/// One per process, like stderr, and created at first use.
struct Log {
    Log() : logger("distilld", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()) {
        logger.flush_on(spdlog::level::info);
    }
    spdlog::logger logger;
    std::atomic<bool> json{false};
};

void set_form(Log& log, bool json) {
    log.json = json;
    log.logger.set_pattern(json ? "%v" : "%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
}

Log& the_log() {
    static const std::unique_ptr<Log> instance = [] {
        auto made = std::make_unique<Log>();
        set_form(*made, false);
        return made;
    }();
    return *instance;
}

}  // namespace

void configure(Level min_level, bool json) {
    the_log().logger.set_level(to_spdlog(min_level));
    set_form(the_log(), json);
}

void write(Level level, std::string_view component, std::string_view message) {
    Log& log = the_log();
    if (log.json) {
        log.logger.log(to_spdlog(level), "{}", to_shown_utf8(json_line(level, component, message)));
    } else {
        log.logger.log(to_spdlog(level), "{}: {}", component, to_shown_utf8(message));
    }
}

}  // namespace distilld::log
