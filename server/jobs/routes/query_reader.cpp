#include "server/jobs/routes/query_reader.hpp"

#include <algorithm>

#include "api/kinds/text_checks.hpp"
#include "server/jobs/routes/api_route.hpp"

namespace distilld {
namespace {

/// `known` ends with "[]" if it stands for all of the form known[…].
bool is_called(std::string_view name, std::string_view known) {
    if (!known.ends_with("[]")) {
        return name == known;
    }
    return name.starts_with(known.substr(0, known.size() - 1)) && name.ends_with(']');
}

}  // namespace

QueryReader::QueryReader(const http::Request& request, std::initializer_list<std::string_view> known)
    : request_(request) {
    const auto& query = request.query;
    for (auto entry = query.begin(); entry != query.end(); ++entry) {
        const auto& name = entry->first;
        const auto same = [&](const auto& other) { return other.first == name; };
        const auto earlier = std::count_if(query.begin(), entry, same);
        if (std::ranges::none_of(known, [&](auto one) { return is_called(name, one); })) {
            if (earlier == 0) {
                wrong(name, "unknown query parameter '" + name + "'", "unknown_parameter");
            }
        } else if (earlier == 1) {
            wrong(name, "query parameter '" + name + "' is given twice", "duplicate_parameter");
        }
    }
}

std::uint32_t QueryReader::limit(std::uint32_t otherwise, std::uint32_t max) {
    return number<std::uint32_t>("limit", 1, max).value_or(otherwise);
}

std::optional<boost::json::value> QueryReader::read(std::string_view text, const char* name,
                                                    const api::ValueKind& kind) {
    std::vector<api::Violation> found;
    const bool is_number = text.find_first_not_of("-0123456789") == std::string_view::npos;
    const auto given = is_number ? kind.value_of({std::string(text)}) : boost::json::value(text);
    const auto kept = kind.read(given, {.pointer = "", .violations = found, .hides_values = true});
    for (const auto& one : found) {
        wrong(name, std::string(name) + " " + one.detail);
    }
    return kept;
}

bool QueryReader::is(const char* name, const char* one, std::vector<std::string> names, bool otherwise) {
    const auto text = value(name);
    return text && read(*text, name, *api::choice_kind(std::move(names))) ? *text == one : otherwise;
}

void QueryReader::wrong(std::string name, std::string detail, std::string code) {
    violations_.push_back({{}, std::move(code), std::move(detail), std::move(name)});
}

void QueryReader::finish() const {
    if (violations_.empty()) {
        return;
    }
    api::Problem problem;
    problem.status = 400;
    problem.code = violations_.front().code;
    problem.param = violations_.front().parameter;
    problem.instance = request_.path;
    problem.detail = api::text_of_first(violations_, "; ", [](const api::Violation& one) { return one.detail; });
    problem.errors = violations_;
    throw ProblemError{std::move(problem)};
}

void check_query(const http::Request& request, std::initializer_list<std::string_view> known) {
    QueryReader(request, known).finish();
}

}  // namespace distilld
