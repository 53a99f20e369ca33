#include "server/cli/jobs/job_tables.hpp"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <optional>
#include <span>

#include "api/job_fields.hpp"
#include "base/cores.hpp"
#include "base/format.hpp"
#include "base/json_fields.hpp"
#include "server/cli/progress_display.hpp"

namespace distilld::cli {
namespace {

namespace json = boost::json;

std::string padded(std::string text, std::size_t width) {
    if (text.size() < width) {
        text.resize(width, ' ');
    }
    return text + "  ";
}

/// "  (waits since … : teacher_unavailable)"
std::string wait_text(const api::Job& job) {
    const auto& reason = job.status_reason;
    return reason && !reason->since.empty() ? "  (waits since " + reason->since + ": " + reason->code + ")" : "";
}

/// A column of the list of jobs. All but the last are padded.
struct JobColumn {
    const char* title;
    std::size_t width;
    std::string (*text)(const api::Job& job);
};

constexpr const char* kCrossEntropy = " nats/token (cross entropy)";

std::string step_text(const api::Job& job) {
    return job.progress ? std::to_string(job.progress->step) + "/" + std::to_string(job.progress->total_steps) : "-";
}

std::string done_text(const api::Job& job) {
    if (!job.progress || job.progress->total_steps == 0) {
        return "-";
    }
    return std::to_string(job.progress->step * 100 / job.progress->total_steps) + "%";
}

std::string short_number(double number) {
    auto text = std::to_string(number);
    text.resize(std::min<std::size_t>(text.size(), 8));
    return text;
}

std::string loss_text(const api::Job& job) {
    return job.progress ? short_number(job.progress->loss) : "-";
}

std::string rate_text(const api::Job& job) {
    return job.progress ? count_text(job.progress->tokens_per_second) : "-";
}

std::string remaining_text(const api::Job& job) {
    const bool runs = job.state == api::JobState::running && job.progress;
    return runs ? duration_text(job.progress->seconds_remaining) : "-";
}

std::string name_and_wait(const api::Job& job) {
    return job.name + wait_text(job);
}

constexpr JobColumn kId{"ID", 28, [](const api::Job& job) { return job.id; }};
constexpr JobColumn kState{"STATE", 10, [](const api::Job& job) { return std::string(api::to_string(job.state)); }};
constexpr JobColumn kStep{"STEP", 15, step_text};
constexpr JobColumn kLoss{"LOSS", 8, loss_text};
constexpr JobColumn kName{"NAME", 0, name_and_wait};

constexpr std::array kColumns{kId, kState, kStep, kLoss, kName};
constexpr std::array kWideColumns{
    kId,
    kState,
    kStep,
    JobColumn{"DONE", 4, done_text},
    kLoss,
    JobColumn{"EVAL CE", 8,
              [](const api::Job& job) { return job.eval_loss ? short_number(*job.eval_loss) : std::string("-"); }},
    JobColumn{"TOK/S", 8, rate_text},
    JobColumn{"ETA", 8, remaining_text},
    JobColumn{"PRIO", 4, [](const api::Job& job) { return std::to_string(job.priority); }},
    JobColumn{"SLOT", 4, [](const api::Job& job) { return job.slot ? std::to_string(*job.slot) : std::string("-"); }},
    JobColumn{"OWNER", 12, [](const api::Job& job) { return job.owner.empty() ? std::string("-") : job.owner; }},
    JobColumn{"CREATED", 24, [](const api::Job& job) { return job.created_at; }},
    kName,
};

/// The array `data` of a list; null: there is none.
const json::array* data_of(const json::value& answer) {
    const auto* object = answer.if_object();
    const auto* data = object == nullptr ? nullptr : object->if_contains("data");
    return data == nullptr ? nullptr : data->if_array();
}

const json::array& array_of(const json::object& object, const char* name) {
    static const json::array kNone;
    const auto* value = object.if_contains(name);
    return value == nullptr || !value->is_array() ? kNone : value->get_array();
}

std::string text_of(const json::object& object, const char* name) {
    const auto* value = object.if_contains(name);
    return value == nullptr || !value->is_string() ? std::string() : std::string(value->get_string());
}

/// null (a value that was not finite) becomes "nan".
std::string number_text(const json::value& value) {
    return value.is_number() ? formatted("%.6g", value.to_number<double>()) : "nan";
}

std::string whole_text(const json::value& value) {
    return formatted("%.0f", value.to_number<double>());
}

std::string metric_line(const json::object& series) {
    const auto& values = array_of(series, "values");
    const auto name = padded(text_of(series, "name"), 24);
    const auto* total = series.if_contains("total_points");
    const auto points = padded(total != nullptr && total->is_number() ? number_text(*total) : "-", 8);
    const json::value* low = nullptr;
    const json::value* high = nullptr;
    for (const auto& value : values) {
        if (!value.is_number()) {
            continue;
        }
        const auto number = value.to_number<double>();
        low = low == nullptr || number < low->to_number<double>() ? &value : low;
        high = high == nullptr || number > high->to_number<double>() ? &value : high;
    }
    std::string line = name + points;
    const auto cell = [](const json::value* value) { return value == nullptr ? "-" : number_text(*value); };
    line += padded(values.empty() ? "-" : number_text(values.front()), 12);
    line += padded(values.empty() ? "-" : number_text(values.back()), 12);
    return line + padded(cell(low), 12) + cell(high) + "\n";
}

Result<std::string> table_of_jobs(const json::value& answer, std::span<const JobColumn> columns) {
    const auto* data = data_of(answer);
    if (data == nullptr) {
        return io_error("the service's answer is not a list of jobs");
    }
    std::string text;
    const auto add = [&](const JobColumn& column, const std::string& cell) {
        const bool last = &column == &columns.back();
        text += last ? cell + "\n" : padded(cell, column.width);
    };
    for (const auto& column : columns) {
        add(column, column.title);
    }
    for (const auto& element : *data) {
        const auto job = api::job_from_json(element);
        if (!job) {
            return job.error();
        }
        for (const auto& column : columns) {
            add(column, column.text(*job));
        }
    }
    return text;
}

}  // namespace

std::string job_text(const api::Job& job) {
    std::string text;
    const auto add = [&text](const char* name, const std::string& value) {
        if (!value.empty()) {
            text += padded(name, 12) + value + "\n";
        }
    };
    add("id", job.id);
    add("name", job.name);
    add("state", std::string(api::to_string(job.state)) +
                     (job.cancel_requested && !api::is_terminal(job.state) ? " (cancel requested)" : ""));
    if (job.status_reason) {
        add("reason", job.status_reason->code + ": " + job.status_reason->message);
        add("waits since", job.status_reason->since);
    }
    if (job.queue_position) {
        add("queue", std::to_string(*job.queue_position));
    }
    if (job.task) {
        add("task", std::to_string(*job.task) + (job.task_of.empty() ? "" : " of " + job.task_of));
    }
    for (const std::string& task : job.tasks) {
        add("tasks", task);
    }
    add("priority", std::to_string(job.priority));
    if (job.max_concurrent) {
        add("in flight", "at most " + std::to_string(*job.max_concurrent) + ", which was set later");
    }
    for (const auto& [name, value] : job.metadata) {
        add("metadata", name + "=" + value);
    }
    if (job.slot) {
        add("slot", std::to_string(*job.slot) + (job.cores.empty() ? "" : ", cores " + core_list(job.cores)) +
                        (job.device.empty() ? "" : ", GPU " + job.device));
    }
    add("created", job.created_at);
    add("started", job.started_at);
    add("finished", job.finished_at);
    if (job.progress) {
        add("progress", progress_line(*job.progress));
    }
    if (job.progress) {
        add("bottleneck", job.progress->bottleneck);
        std::size_t rank = 0;
        for (const std::string& line : rank_lines(*job.progress)) {
            add(("rank " + std::to_string(rank++)).c_str(), line);
        }
    }
    add("dtype", job.dtype);
    if (job.eval_loss) {
        add("held-out", std::to_string(*job.eval_loss) + kCrossEntropy);
    }
    if (job.eval_kl) {
        add("held-out KL", std::to_string(*job.eval_kl) + " nats/token");
    }
    if (job.eval_top1_agreement) {
        add("eval top-1", std::to_string(*job.eval_top1_agreement));
    }
    if (job.eval_acceptance_rate) {
        add("acceptance", acceptance_text(*job.eval_acceptance_rate));
    }
    if (job.exported_eval_loss) {
        add("as exported", std::to_string(*job.exported_eval_loss) + kCrossEntropy);
    }
    if (!job.checkpoints.empty()) {
        const std::string others =
            job.checkpoints_total > 1 ? " (" + std::to_string(job.checkpoints_total) + " were written)" : "";
        add("checkpoint", job.checkpoints.back().folder + others);
    }
    add("output", job.output);
    add("sha256", job.weights_sha256);
    return text;
}

Result<std::string> jobs_table(const json::value& answer) {
    return table_of_jobs(answer, kColumns);
}

Result<std::string> wide_jobs_table(const json::value& answer) {
    return table_of_jobs(answer, kWideColumns);
}

Result<std::string> checkpoints_table(const json::value& answer) {
    const auto* data = data_of(answer);
    if (data == nullptr) {
        return io_error("the service's answer is not a list of checkpoints");
    }
    std::string text = padded("STEP", 10) + padded("MB", 10) + padded("CREATED", 24) + "FOLDER\n";
    for (const auto& element : *data) {
        if (!element.is_object()) {
            return io_error("the service's answer is not a list of checkpoints");
        }
        api::JobCheckpoint checkpoint;
        if (const auto read = read_fields(element.get_object(), checkpoint, JsonPlace{"checkpoint", {}}); !read) {
            return read.error();
        }
        const std::string megabytes =
            checkpoint.bytes ? formatted("%.1f", static_cast<double>(*checkpoint.bytes) / 1e6) : "-";
        text += padded(std::to_string(checkpoint.step), 10) + padded(megabytes, 10) +
                padded(checkpoint.created_at, 24) + checkpoint.folder + "\n";
    }
    return text;
}

Result<std::string> metrics_table(const json::value& answer) {
    const auto* data = data_of(answer);
    if (data == nullptr) {
        return io_error("the service's answer has no metrics");
    }
    std::string text = padded("METRIC", 24) + padded("POINTS", 8) + padded("FIRST", 12) + padded("LAST", 12) +
                       padded("MIN", 12) + "MAX\n";
    for (const auto& element : *data) {
        if (element.is_object()) {
            text += metric_line(element.get_object());
        }
    }
    return text;
}

Result<std::string> nodes_table(const json::value& answer) {
    const auto* data = data_of(answer);
    if (data == nullptr) {
        return io_error("the service's answer is not a list of nodes");
    }
    std::string text = padded("NODE", 24) + padded("STATE", 10) + padded("CORES", 5) + padded("MEMORY MB", 9) +
                       padded("GPUS", 4) + "JOBS\n";
    for (const auto& element : *data) {
        if (!element.is_object()) {
            return io_error("the service's answer is not a list of nodes");
        }
        const json::object& node = element.get_object();
        const auto number = [&node](const char* name) {
            const auto* value = node.if_contains(name);
            return value != nullptr && value->is_number() ? whole_text(*value) : std::string("-");
        };
        std::string jobs;
        for (const auto& job : array_of(node, "jobs")) {
            jobs += (jobs.empty() ? "" : " ") + (job.is_string() ? std::string(job.get_string()) : "?");
        }
        text += padded(text_of(node, "name"), 24) + padded(text_of(node, "state"), 10) + padded(number("cores"), 5) +
                padded(number("memory_mb"), 9) + padded(number("gpus"), 4) + (jobs.empty() ? "-" : jobs) + "\n";
    }
    return text;
}

Result<std::string> estimate_text(const json::value& answer) {
    const auto* object = answer.if_object();
    const auto* found = object == nullptr ? nullptr : object->if_contains("estimate");
    const auto* estimate = found == nullptr ? nullptr : found->if_object();
    if (estimate == nullptr) {
        return io_error("the service's answer has no estimate");
    }
    std::string text = padded("valid", 16) + "yes\n";
    for (const char* name : {"steps", "tokens", "parameters", "seconds"}) {
        const auto* value = estimate->if_contains(name);
        text += padded(name, 16) + (value != nullptr && value->is_number() ? whole_text(*value) : "not known") + "\n";
    }
    if (const auto based_on = text_of(*estimate, "based_on"); !based_on.empty()) {
        text += padded("based on", 16) + based_on + "\n";
    }
    const auto* memory = estimate->if_contains("memory_bytes");
    if (memory != nullptr && memory->is_object()) {
        for (const auto& [name, bytes] : memory->get_object()) {
            const auto number = formatted("%.1f MB", bytes.is_number() ? bytes.to_number<double>() / 1e6 : 0.0);
            std::string label = std::string(name) == "total" ? "memory" : "  " + std::string(name);
            std::ranges::replace(label, '_', ' ');
            text += padded(std::move(label), 16) + number + "\n";
        }
    }
    for (const auto& note : array_of(*estimate, "notes")) {
        text += "note: " + (note.is_string() ? std::string(note.get_string()) : std::string()) + "\n";
    }
    for (const auto& what : array_of(*estimate, "not_checked")) {
        text += "not checked: " + (what.is_string() ? std::string(what.get_string()) : std::string()) + "\n";
    }
    return text;
}

Result<std::string> deleted_text(const json::value& answer) {
    const auto* object = answer.if_object();
    return object == nullptr ? Result<std::string>(io_error("the service's answer is not an object"))
                             : text_of(*object, "id") + " deleted\n";
}

}  // namespace distilld::cli
