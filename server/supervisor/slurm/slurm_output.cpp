#include "server/supervisor/slurm/slurm_output.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "base/ascii.hpp"
#include "base/saturating.hpp"
#include "base/utf8.hpp"

namespace distilld::slurm {
namespace {

constexpr std::size_t kMaxName = 255;
constexpr std::size_t kMaxDigits = 9;

std::vector<std::string_view> split(std::string_view text, char border, std::size_t max_parts = SIZE_MAX) {
    std::vector<std::string_view> parts;
    while (parts.size() + 1 < max_parts) {
        const std::size_t end = text.find(border);
        if (end == std::string_view::npos) {
            break;
        }
        parts.push_back(text.substr(0, end));
        text.remove_prefix(end + 1);
    }
    parts.push_back(text);
    return parts;
}

/// A name of a node, or a word for a state.
bool is_name(std::string_view text) {
    constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
    return !text.empty() && text.size() <= kMaxName && text.find_first_not_of(kLetters) == std::string_view::npos;
}

/// The GPUs of "gpu:a100:4(S:0-1),shard:8".
std::uint32_t read_gpus(std::string_view gres) {
    std::uint64_t gpus = 0;
    std::size_t depth = 0;
    std::string plain;  // without what is in brackets, which may have commas
    for (const char letter : gres) {
        depth += letter == '(' ? 1 : 0;
        if (depth == 0) {
            plain += letter;
        }
        depth -= letter == ')' && depth > 0 ? 1 : 0;
    }
    for (const std::string_view one : split(plain, ',')) {
        const auto parts = split(one, ':');
        if (parts.front() == "gpu") {
            const auto count = parts.size() > 1 ? number_from<std::uint32_t>(parts.back()) : 1U;
            gpus = saturating_sum(gpus, count.value_or(1));
        }
    }
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(gpus, std::numeric_limits<std::uint32_t>::max()));
}

/// sinfo(1), NODE STATE CODES: signs behind a state are flags, of which "*" is a node that does not respond.
std::string read_state(std::string_view text) {
    const std::size_t end = text.find_first_of("*~#!%$@^+-");
    const std::string state = ascii_lower(text.substr(0, end));
    const bool silent = end != std::string_view::npos && text[end] == '*';
    return silent && (state == "idle" || state == "mixed" || state == "allocated") ? "not_responding" : state;
}

std::optional<Node> read_node(std::string_view line) {
    const auto fields = split(line, '|', 5);
    if (fields.size() != 5) {
        return std::nullopt;
    }
    const auto cores = number_from<std::uint32_t>(fields[2]);
    const auto memory = number_from<std::uint64_t>(fields[3]);
    Node node;
    node.name = fields[0];
    node.state = read_state(fields[1]);
    if (!is_name(node.name) || !is_name(node.state) || !cores || !memory) {
        return std::nullopt;
    }
    node.cores = *cores;
    node.memory_mb = *memory;
    node.gpus = read_gpus(fields[4]);
    return node;
}

/// The word after ` name=` in a record of scontrol, whose first field begins the text.
std::optional<std::string_view> field_of(std::string_view record, std::string_view name) {
    const std::size_t start = record.find(name);
    if (start == std::string_view::npos) {
        return std::nullopt;
    }
    const std::string_view rest = record.substr(start + name.size());
    return rest.substr(0, rest.find_first_of(" \n"));
}

/// Appends "07" to "12" of "07-12", with as many digits; false if it is not a range, or too long.
bool add_range(std::string_view range, std::vector<std::string>& numbers) {
    const std::size_t dash = range.find('-');
    const std::string_view first_text = range.substr(0, dash);
    const std::string_view last_text = dash == std::string_view::npos ? first_text : range.substr(dash + 1);
    const auto first = number_from<std::uint32_t>(first_text);
    const auto last = number_from<std::uint32_t>(last_text);
    if (!first || !last || first_text.size() > kMaxDigits || *last < *first || *last - *first >= kMaxHosts) {
        return false;
    }
    for (std::uint32_t number = *first; number <= *last; ++number) {
        std::string text = std::to_string(number);
        text.insert(0, first_text.size() - std::min(first_text.size(), text.size()), '0');
        numbers.push_back(std::move(text));
    }
    return numbers.size() <= kMaxHosts;
}

/// Each of the heads with each of the tails behind it; false: too many.
bool multiply(std::vector<std::string>& heads, const std::vector<std::string>& tails) {
    if (heads.size() * tails.size() > kMaxHosts || heads.front().size() > kMaxName) {
        return false;
    }
    std::vector<std::string> made;
    for (const std::string& head : heads) {
        for (const std::string& tail : tails) {
            made.push_back(head + tail);
        }
    }
    heads = std::move(made);
    return true;
}

/// Takes the first name of the list, with its brackets, and the comma behind it.
std::optional<std::vector<std::string>> take_hosts(std::string_view& list) {
    std::vector<std::string> names(1);
    while (!list.empty() && list.front() != ',') {
        if (list.front() != '[') {
            const std::size_t end = std::min(list.find_first_of(",["), list.size());
            if (!is_name(list.substr(0, end)) || !multiply(names, {std::string(list.substr(0, end))})) {
                return std::nullopt;
            }
            list.remove_prefix(end);
            continue;
        }
        const std::size_t end = list.find(']');
        std::vector<std::string> numbers;
        for (const std::string_view range : split(list.substr(1, end - 1), ',')) {
            if (end == std::string_view::npos || !add_range(range, numbers)) {
                return std::nullopt;
            }
        }
        if (!multiply(names, numbers)) {
            return std::nullopt;
        }
        list.remove_prefix(end + 1);
    }
    list.remove_prefix(list.empty() ? 0 : 1);
    return names.front().empty() ? std::nullopt : std::optional(std::move(names));
}

}  // namespace

Result<std::uint64_t> read_job_id(std::string_view text) {
    const std::string_view line = trimmed(text, " \t\n");
    const auto id = number_from<std::uint64_t>(line.substr(0, line.find(';')));
    if (!id || *id == 0) {
        return io_error("sbatch printed no job id, but \"" + to_shown_utf8(line.substr(0, 80)) + "\"");
    }
    return *id;
}

std::vector<QueueEntry> read_queue(std::string_view text) {
    std::vector<QueueEntry> entries;
    for (const std::string_view line : split(text, '\n')) {
        const auto fields = split(line, '|', 5);
        const auto id = number_from<std::uint64_t>(fields.front());
        if (fields.size() == 5 && id && is_name(fields[1])) {
            entries.push_back({*id, std::string(fields[1]), std::string(fields[2]),
                               to_valid_utf8(fields[3].substr(0, kMaxName)), to_valid_utf8(fields[4])});
        }
    }
    return entries;
}

std::optional<JobRecord> read_record(std::string_view text) {
    const auto state = field_of(text, " JobState=");
    if (!state || !is_name(*state)) {
        return std::nullopt;
    }
    JobRecord record{std::string(*state)};
    const auto ended = split(field_of(text, " ExitCode=").value_or(""), ':', 2);
    record.exit_code = number_from<int>(ended.front()).value_or(0);
    record.signal = number_from<int>(ended.back()).value_or(0);
    return record;
}

std::vector<Node> read_nodes(std::string_view text) {
    std::vector<Node> nodes;
    std::set<std::string, std::less<>> seen;  // a node has a line for each of its partitions
    for (const std::string_view line : split(text, '\n')) {
        auto node = read_node(line);
        if (node && seen.insert(node->name).second) {
            nodes.push_back(*std::move(node));
        }
    }
    return nodes;
}

std::vector<std::string> read_host_list(std::string_view list) {
    std::vector<std::string> names;
    while (!list.empty()) {
        const auto hosts = take_hosts(list);
        if (!hosts || names.size() + hosts->size() > kMaxHosts) {
            return {};
        }
        names.insert(names.end(), hosts->begin(), hosts->end());
    }
    return names;
}

}  // namespace distilld::slurm
