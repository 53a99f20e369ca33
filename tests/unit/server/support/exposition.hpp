#pragma once

#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

namespace distilld::test {

/// The lines of a text exposition. Their order says nothing to a scraper.
inline std::set<std::string> exposition_lines(const std::string& text) {
    std::set<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        lines.insert(line);
    }
    return lines;
}

/// The same without the values that differ from run to run.
inline std::set<std::string> lines_without_process_values(const std::string& text) {
    std::set<std::string> lines;
    for (const auto& line : exposition_lines(text)) {
        lines.insert(line.starts_with("process_") ? line.substr(0, line.find(' ')) : line);
    }
    return lines;
}

/// Value of the sample "name{labels}"; throws where there is none.
inline double sample(const std::string& text, const std::string& name) {
    for (const auto& line : exposition_lines(text)) {
        if (line.starts_with(name + " ")) {
            return std::stod(line.substr(name.size() + 1));
        }
    }
    throw std::runtime_error("no sample " + name);
}

/// Names of the metrics, as their HELP lines say them.
inline std::set<std::string> metric_names(const std::string& text) {
    std::set<std::string> names;
    for (const auto& line : exposition_lines(text)) {
        std::istringstream words(line);
        std::string hash;
        std::string kind;
        std::string name;
        words >> hash >> kind >> name;
        if (hash == "#" && kind == "HELP") {
            names.insert(name);
        }
    }
    return names;
}

}  // namespace distilld::test
