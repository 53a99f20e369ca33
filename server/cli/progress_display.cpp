#include "server/cli/progress_display.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <type_traits>
#include <variant>

#include "base/format.hpp"
#include "base/json_text.hpp"
#include "base/utf8.hpp"
#include "pipeline/core/loss_kind.hpp"

namespace distilld::cli {
namespace {

constexpr std::chrono::milliseconds kPlainInterval{1000};
constexpr std::chrono::milliseconds kBarInterval{100};
constexpr double kNoticeable = 0.001;  // of an answer, in seconds
constexpr unsigned kBarWidth = 20;
constexpr unsigned kLeastWidth = 20;  // of a terminal

std::string percent(double fraction) {
    return std::isfinite(fraction) ? formatted("%.1f%%", 100 * fraction) : "?";
}

std::string loss_text(double loss, bool of_samples) {
    return formatted("%.4f", loss) + loss_unit(of_samples);
}

std::string evaluation_line(const EvaluationEvent& evaluation) {
    std::string text = "step " + std::to_string(evaluation.step) + " held-out " +
                       (evaluation.of_samples ? "loss " : "cross entropy ") +
                       loss_text(evaluation.loss, evaluation.of_samples);
    if (evaluation.kl) {
        text += ", KL to the teacher " + formatted("%.4f", *evaluation.kl);
    }
    if (evaluation.top1_agreement) {
        text += ", top-1 agreement " + percent(*evaluation.top1_agreement);
    }
    if (evaluation.acceptance_rate) {
        text += ", acceptance as a draft " + acceptance_text(*evaluation.acceptance_rate);
    }
    return text;
}

std::string figures_line(const FiguresEvent& event) {
    std::string text = "step " + std::to_string(event.step) + " eval.command";
    if (!event.problem.empty()) {
        return text + ": " + event.problem;
    }
    for (const auto& [name, value] : event.figures) {
        text += (text.ends_with("command") ? " " : ", ") + name + " " + number_text(value);
    }
    return text;
}

/// The rows' share of the tokens that were read, if known.
std::string tokens_text(const StartedEvent& started) {
    const std::string used = count_text(static_cast<double>(started.dataset_tokens));
    return used +
           (started.dataset_tokens_read == 0 ? ""
                                             : " of " + count_text(static_cast<double>(started.dataset_tokens_read))) +
           " tokens";
}

const char* rate_unit(const ProgressEvent& progress) {
    return progress.of_samples ? " samples/s" : " tok/s";
}

/// "  tokens/s        1234\n"
std::string rate_figure(const ProgressEvent& last) {
    return (last.of_samples ? "  samples/s       " : "  tokens/s        ") + formatted("%.0f", last.tokens_per_second) +
           "\n";
}

std::string rollout_figures(const ProgressEvent& last, const RolloutCounters& rollout) {
    std::uint64_t graded = 0;
    for (const EndpointCounters& endpoint : last.fetch.endpoints) {
        graded += endpoint.tokens;
    }
    const auto per_second = [&last](std::uint64_t tokens) {
        return count_text(last.seconds_elapsed > 0 ? static_cast<double>(tokens) / last.seconds_elapsed : 0);
    };
    return "  rollout         " + count_text(static_cast<double>(rollout.answers)) + " answers of " +
           formatted("%.1f", rollout.mean_length) + " tokens, " + std::to_string(rollout.cut) +
           " cut at max_tokens, entropy " + formatted("%.2f nats", rollout.entropy) +
           (rollout.reverse_kl ? formatted(", reverse KL %.4f nats", *rollout.reverse_kl) : "") +
           "\n    tokens/s      " + per_second(rollout.tokens) + " written, " + per_second(graded) + " graded, " +
           per_second(last.tokens) + " trained on\n";
}

/// On one line, whatever the student generates.
std::string quoted(const std::string& text) {
    std::string shown = "\"";
    for (const char c : text) {
        if (c == '\n') {
            shown += "\\n";
        } else if (c == '"' || c == '\\') {
            shown += std::string("\\") + c;
        } else {
            shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
        }
    }
    return shown + "\"";
}

}  // namespace

std::string duration_text(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) {
        return "?";
    }
    const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
    std::array<char, 64> text{};
    const auto number = [](std::uint64_t n) { return static_cast<unsigned long long>(n); };
    if (whole < 60) {
        std::snprintf(text.data(), text.size(), "%llus", number(whole));
    } else if (whole < 3600) {
        std::snprintf(text.data(), text.size(), "%llum%02llus", number(whole / 60), number(whole % 60));
    } else {
        std::snprintf(text.data(), text.size(), "%lluh%02llum", number(whole / 3600), number(whole / 60 % 60));
    }
    return text.data();
}

std::string count_text(double count) {
    if (!std::isfinite(count)) {
        return "?";
    }
    if (count < 1000) {
        return formatted("%.0f", count);
    }
    if (count < 1e6) {
        return formatted("%.1fk", count / 1e3);
    }
    return count < 1e9 ? formatted("%.2fM", count / 1e6) : formatted("%.2fG", count / 1e9);
}

namespace {

/// "rows 1200/10000 (1024 sealed) | 12.3k tok/s | ETA 3m20s", and the work of each of several teachers.
std::string generate_line(const ProgressEvent& progress) {
    std::string text = "rows " + std::to_string(progress.step) + "/" + std::to_string(progress.total_steps);
    if (progress.fetch.store) {
        text += " (" + std::to_string(progress.fetch.store->sealed_rows) + " sealed)";
    }
    text += " | " + count_text(progress.tokens_per_second) + rate_unit(progress);
    if (progress.fetch.endpoints.size() > 1) {
        text += " (";
        for (const EndpointCounters& endpoint : progress.fetch.endpoints) {
            text +=
                (&endpoint == &progress.fetch.endpoints.front() ? "" : " + ") + count_text(endpoint.tokens_per_second);
        }
        text += ")";
    }
    return text + " | ETA " + duration_text(progress.seconds_remaining);
}

std::string teacher_figures(const FetchCounters& fetch) {
    std::string text = "  teacher         " + counted(fetch.requests, "request") + ", " +
                       std::to_string(fetch.retries) + " retried, " + std::to_string(fetch.hedges) + " hedged, p50 " +
                       formatted("%.3f s", fetch.latency_p50_seconds) + ", p95 " +
                       formatted("%.3f s", fetch.latency_p95_seconds) + "\n";
    for (const TeacherCounters& one : fetch.teachers) {
        text += "    " + one.teacher + ": " + counted(one.requests, "request") + ", waited for " +
                formatted("%.3f s", one.wait_seconds) + "\n";
    }
    return text;
}

/// For a training run with answers from or through a store.
std::string store_figures(const FetchCounters& fetch) {
    std::string text = "  answers         " + std::to_string(fetch.requests) + " through the store, which has " +
                       std::to_string(fetch.store->held_rows) + " of " + counted(fetch.store->rows, "row");
    if (fetch.retries != 0) {
        text += ", " + std::to_string(fetch.retries) + " retried";
    }
    if (fetch.latency_p95_seconds >= kNoticeable) {
        text += ", p50 " + formatted("%.3f s", fetch.latency_p50_seconds) + ", p95 " +
                formatted("%.3f s", fetch.latency_p95_seconds);
    }
    return text + "\n";
}

std::string generate_summary(const FinishedEvent& finished) {
    const ProgressEvent& last = finished.last;
    const StoreCounters store = last.fetch.store.value_or(StoreCounters{});
    std::string text =
        "finished: " + counted(last.step, "row") + " in the store, after " + duration_text(last.seconds_elapsed) + "\n";
    text += rate_figure(last);
    if (last.fetch.requests != 0) {
        text += teacher_figures(last.fetch);
    }
    for (const EndpointCounters& endpoint : last.fetch.endpoints) {
        text += "  endpoint        " + endpoint.endpoint + ": " + std::to_string(endpoint.tokens) +
                (last.of_samples ? " samples\n" : " tokens\n");
    }
    text += "  bytes           " + std::to_string(store.sealed_bytes) + "\n";
    return text + "  store           " + finished.output + "\n";
}

}  // namespace

std::string progress_line(const ProgressEvent& progress) {
    if (progress.generates) {
        return generate_line(progress);
    }
    std::string text = "step " + std::to_string(progress.step) + "/" + std::to_string(progress.total_steps);
    text += std::string(" ") + loss_kind(progress) + (*loss_kind(progress) == 0 ? "loss " : " loss ") +
            loss_text(progress.loss, progress.of_samples) + " lr " + formatted("%.1e", progress.learning_rate);
    text += " | " + count_text(progress.tokens_per_second) + rate_unit(progress);
    text += " | ETA " + duration_text(progress.seconds_remaining);
    text += " | stall " + percent(progress.stall_fraction);
    if (progress.nonfinite_steps != 0) {
        text += " | " + counted(progress.nonfinite_steps, "step") + " skipped";
    }
    return text;
}

std::string acceptance_text(double rate) {
    constexpr int kDrafted = 4;
    // Leviathan et al. 2023, arXiv 2211.17192, equation 1: as if each token were accepted independently.
    double tokens = 1;
    for (int i = 0; i < kDrafted; ++i) {
        tokens = 1 + rate * tokens;
    }
    return percent(rate) + formatted(" (%.1f tokens per teacher pass with ", tokens) + std::to_string(kDrafted) +
           " drafted)";
}

std::vector<std::string> rank_lines(const ProgressEvent& progress) {
    std::vector<std::string> lines;
    for (const RankCounters& rank : progress.ranks) {
        lines.push_back(rank.host + ": " + count_text(rank.tokens_per_second) + rate_unit(progress) +
                        ", waited for input " + formatted("%.2f s", rank.wait_input_seconds) + ", for other ranks " +
                        formatted("%.2f s", rank.wait_ranks_seconds));
    }
    return lines;
}

std::string progress_bar(const ProgressEvent& progress, unsigned width) {
    const double share = progress.total_steps == 0
                             ? 0.0
                             : static_cast<double>(progress.step) / static_cast<double>(progress.total_steps);
    const auto filled = static_cast<unsigned>(std::clamp(share, 0.0, 1.0) * kBarWidth);
    std::string text = "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "] ";
    text += progress_line(progress);
    if (text.size() > width) {
        text.resize(width);
    }
    return text;
}

std::string summary(const FinishedEvent& finished) {
    const ProgressEvent& last = finished.last;
    if (last.generates) {
        return generate_summary(finished);
    }
    std::string text = "finished " + counted(last.step, "step") + " in " + duration_text(last.seconds_elapsed) + "\n";
    const std::string kind = *loss_kind(last) == 0 ? "" : std::string(" (") + loss_kind(last) + ")";
    const std::string held_out = last.of_samples ? "\n" : " (cross entropy)\n";
    text += "  loss            " + loss_text(last.loss, last.of_samples) + kind + "\n";
    if (finished.eval_loss) {
        text += "  held-out        " + loss_text(*finished.eval_loss, last.of_samples) + held_out;
    }
    if (finished.exported_eval_loss) {
        text += "    as exported   " + loss_text(*finished.exported_eval_loss, last.of_samples) + held_out;
    }
    text += rate_figure(last);
    text += "  student stall   " + percent(last.stall_fraction) + "\n";
    if (last.fetch.requests != 0) {
        text += "  teacher hidden  " + percent(last.teacher_hidden_fraction) + "\n";
        text += last.fetch.store ? store_figures(last.fetch) : teacher_figures(last.fetch);
    }
    if (last.rollout) {
        text += rollout_figures(last, *last.rollout);
    }
    if (!last.bottleneck.empty()) {
        text += "  bottleneck      " + last.bottleneck + "\n";
    }
    std::size_t widest = 0;
    for (const auto& stage : last.stages) {
        widest = std::max(widest, stage.stage.size());
    }
    for (const auto& stage : last.stages) {
        std::string name = stage.stage;
        name.resize(widest + 1, ' ');
        text += "  stage " + name + "busy " + formatted("%.2f s", stage.busy_seconds) + ", waited for input " +
                formatted("%.2f s", stage.wait_input_seconds) + ", for output " +
                formatted("%.2f s", stage.wait_output_seconds) + "\n";
    }
    std::size_t rank = 0;
    for (const std::string& line : rank_lines(last)) {
        text += "  rank " + std::to_string(rank++) + ": " + line + "\n";
    }
    text += "  output          " + finished.output + "\n";
    text += "  weights sha256  " + finished.weights_sha256 + "\n";
    return text;
}

ProgressDisplay::ProgressDisplay(Write write, TerminalWidth width)
    : write_(std::move(write)), width_(std::move(width)) {}

void ProgressDisplay::line(const std::string& text) {
    const std::string shown = to_shown_utf8(text) + "\n";
    write_(bar_.empty() ? shown : "\r\x1b[K" + shown + bar_);
}

void ProgressDisplay::finish() {
    if (!bar_.empty()) {
        write_("\n");
    }
    bar_.clear();
}

void ProgressDisplay::show(const WorkerEvent& event, std::chrono::steady_clock::time_point now) {
    if (const auto* progress = std::get_if<ProgressEvent>(&event)) {
        const bool last = progress->step >= progress->total_steps;
        const auto interval = width_ ? kBarInterval : kPlainInterval;
        if (last_shown_ && !last && now - *last_shown_ < interval) {
            return;
        }
        last_shown_ = now;
        if (width_) {
            bar_ = progress_bar(*progress, std::max(width_(), kLeastWidth) - 1);  // the last column would wrap
            write_("\r\x1b[K" + bar_);
        } else {
            write_(progress_line(*progress) + "\n");
        }
    } else if (const auto* started = std::get_if<StartedEvent>(&event)) {
        std::string text =
            "training " + count_text(static_cast<double>(started->parameters)) + " parameters (" + started->dtype +
            ") on " +
            (started->of_samples ? counted(started->dataset_rows, "sample")
                                 : tokens_text(*started) + " in " + counted(started->dataset_rows, "row")) +
            ": " + counted(started->total_steps, "step") + " of up to " + std::to_string(started->batch_size) + " x " +
            std::to_string(started->micro_batches) + (started->of_samples ? " samples" : " sequences");
        if (started->replicas > 1) {
            text += ", " + std::to_string(started->replicas) + " micro-batches at once";
        }
        if (started->ranks > 1) {
            text += ", on " + std::to_string(started->ranks) + " ranks";
        }
        if (started->first_step != 0) {
            text += ", from step " + std::to_string(started->first_step);
        }
        if (!started->store.empty()) {
            text = "generating " + std::to_string(started->total_steps - started->first_step) + " of " +
                   counted(started->total_steps, "row") +
                   (started->of_samples ? "" : " (" + tokens_text(*started) + ")") + " into " + started->store;
        }
        line(text);
        if (!started->tokenizer.empty()) {
            line("tokenizer: " + started->tokenizer);
        }
        if (!started->teacher.empty()) {
            line("teacher: " + started->teacher);
        }
    } else if (const auto* evaluation = std::get_if<EvaluationEvent>(&event)) {
        line(evaluation_line(*evaluation));
        for (const SampledText& sample : evaluation->samples) {
            line("  " + quoted(sample.prompt) + " → " + quoted(sample.text));
        }
    } else if (const auto* figures = std::get_if<FiguresEvent>(&event)) {
        line(figures_line(*figures));
    } else if (const auto* rollout = std::get_if<RolloutEvent>(&event)) {
        for (const SampledAnswer& sample : rollout->samples) {
            line("step " + std::to_string(rollout->step) + " rollout " + quoted(sample.prompt) + " → " +
                 quoted(sample.text) + (sample.cut ? ", cut" : ""));
        }
    } else if (const auto* checkpoint = std::get_if<CheckpointEvent>(&event)) {
        line("step " + std::to_string(checkpoint->step) + " checkpoint " + checkpoint->folder);
    } else if (const auto* log = std::get_if<LogEvent>(&event)) {
        line(log->level + ": " + log->message);
    } else if (const auto* waiting = std::get_if<WaitingEvent>(&event)) {
        if (!waiting->message.empty()) {
            line((waiting->code.empty() ? "" : "waiting: ") + waiting->message);
        }
    } else if (const auto* finished = std::get_if<FinishedEvent>(&event)) {
        finish();
        write_(to_shown_utf8(summary(*finished)));
    } else if (const auto* cancelled = std::get_if<CancelledEvent>(&event)) {
        finish();
        const bool saved = !cancelled->checkpoint.empty();
        line("interrupted after step " + std::to_string(cancelled->step) +
             (saved ? "; checkpoint: " + cancelled->checkpoint : "; no step was done, no checkpoint written"));
    } else if (std::holds_alternative<FailedEvent>(event)) {
        finish();  // the caller prints the message on stderr
    }
}

}  // namespace distilld::cli
