#pragma once

#include <string>
#include <string_view>

#include "base/enum_names.hpp"

/// The only header for logging. It includes no spdlog, because spdlog and libtorch must not meet in one translation
/// unit. Thread-safe; lines go to stderr.
namespace distilld::log {

enum class Level { debug, info, warn, error };

inline constexpr EnumName<Level> kLevelNames[] = {
    {"debug", Level::debug},
    {"info", Level::info},
    {"warn", Level::warn},
    {"error", Level::error},
};

/// Sets the lowest level that is written (default info) and whether lines are JSON objects: {time, level, component,
/// message}. The time is in UTC; the levels are named like the functions below.
void configure(Level min_level, bool json = false);

void write(Level level, std::string_view component, std::string_view message);

inline void debug(std::string_view component, std::string_view message) {
    write(Level::debug, component, message);
}
inline void info(std::string_view component, std::string_view message) {
    write(Level::info, component, message);
}
inline void warn(std::string_view component, std::string_view message) {
    write(Level::warn, component, message);
}
inline void error(std::string_view component, std::string_view message) {
    write(Level::error, component, message);
}

}  // namespace distilld::log
