#include "server/sinks/mlflow_messages.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/json_text.hpp"
#include "base/utf8.hpp"

namespace distilld::sinks {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxParamBytes = 6000;

json::value number(double value) {
    if (std::isnan(value)) {
        return "NaN";
    }
    if (std::isinf(value)) {
        return value > 0 ? "Infinity" : "-Infinity";
    }
    return value;
}

std::uint64_t step_of(const json::value& value) {
    std::uint64_t step = 0;
    if (const auto* text = value.if_string()) {
        std::from_chars(text->data(), text->data() + text->size(), step);
    } else if (value.is_number()) {
        boost::system::error_code inexact;
        step = value.to_number<std::uint64_t>(inexact);
    }
    return step;
}

std::string text_of(const json::value& value) {
    std::string text = value.is_string() ? std::string(value.get_string()) : to_text(value);
    return std::string(cut_utf8(text, kMaxParamBytes));
}

class Metrics {
  public:
    explicit Metrics(const MlflowHistory& history) : history_(history) {}

    void add(const SinkItem& item) {
        at_ = unix_milliseconds(item.at);
        std::visit([this](const auto& record) { add_record(record); }, item.record);
    }
    std::vector<json::object> take() { return std::move(metrics_); }

  private:
    void add_record(const StepRecord& record) {
        metric("loss", record.step, record.loss);
        metric("kd_loss", record.step, record.kd_loss);
        metric("ce_loss", record.step, record.ce_loss);
        metric("grad_norm", record.step, record.grad_norm);
        metric("learning_rate", record.step, record.learning_rate);
        metric("tokens", record.step, static_cast<double>(record.tokens));
        metric("tokens_per_second", record.step, record.tokens_per_second);
        metric("stall_fraction", record.step, record.stall_fraction);
        metric("teacher_hidden_fraction", record.step, record.teacher_hidden_fraction);
    }
    void add_record(const EvaluationEvent& record) {
        metric("eval_loss", record.step, record.loss);
        if (record.kl) {
            metric("eval_kl", record.step, *record.kl);
        }
        if (record.top1_agreement) {
            metric("eval_top1_agreement", record.step, *record.top1_agreement);
        }
        if (record.acceptance_rate) {
            metric("eval_acceptance_rate", record.step, *record.acceptance_rate);
        }
    }
    void add_record(const FiguresEvent& record) {
        for (const auto& [name, value] : record.figures) {
            metric("figures/" + name, record.step, value);
        }
    }
    void add_record(const CheckpointEvent& record) { metric("checkpoint_seconds", record.step, record.seconds); }
    void add_record(const EndRecord& record) {
        if (record.exported_eval_loss) {
            metric("exported_eval_loss", record.step, *record.exported_eval_loss);
        }
    }
    void add_record(const StartedEvent& /*record*/) {}
    void add_record(const RolloutEvent& /*record*/) {}
    void add_record(const SpanRecord& /*record*/) {}

    void metric(std::string_view key, std::uint64_t step, double value) {
        const auto last = history_.last_steps.find(key);
        if (last == history_.last_steps.end() || step > last->second) {
            metrics_.push_back({{"key", key}, {"value", number(value)}, {"timestamp", at_}, {"step", step}});
        }
    }

    const MlflowHistory& history_;
    std::int64_t at_ = 0;
    std::vector<json::object> metrics_;
};

/// The objects in run.data.`list`.
std::vector<json::object> data_of(const json::object& answer, std::string_view list) {
    std::vector<json::object> found;
    const json::value whole(answer);
    boost::system::error_code absent;
    const json::value* data = whole.find_pointer("/run/data/" + std::string(list), absent);
    if (data != nullptr && data->is_array()) {
        for (const json::value& entry : data->get_array()) {
            if (entry.is_object() && entry.get_object().contains("key") && entry.at("key").is_string()) {
                found.push_back(entry.get_object());
            }
        }
    }
    return found;
}

}  // namespace

MlflowHistory read_mlflow_history(const json::object& answer) {
    MlflowHistory history;
    for (const json::object& metric : data_of(answer, "metrics")) {
        const auto* step = metric.if_contains("step");
        history.last_steps[std::string(metric.at("key").get_string())] = step != nullptr ? step_of(*step) : 0;
    }
    for (const json::object& param : data_of(answer, "params")) {
        history.params.emplace_back(param.at("key").get_string());
    }
    return history;
}

std::vector<json::object> mlflow_params(const std::string& spec_json, const std::vector<std::string>& known) {
    std::vector<json::object> params;
    const auto add = [&](const std::string& key, const json::value& value) {
        if (std::ranges::find(known, key) == known.end()) {
            params.push_back({{"key", key}, {"value", text_of(value)}});
        }
    };
    const json::value spec = json::parse(spec_json);
    for (const auto& [name, value] : spec.get_object()) {
        if (const auto* section = value.if_object()) {
            for (const auto& [field, inner] : *section) {
                add(std::string(name) + "." + std::string(field), inner);
            }
        } else {
            add(name, value);
        }
    }
    return params;
}

std::vector<json::object> mlflow_metrics(const std::vector<SinkItem>& items, const MlflowHistory& history) {
    Metrics metrics(history);
    for (const SinkItem& item : items) {
        metrics.add(item);
    }
    return metrics.take();
}

const char* mlflow_status(EndRecord::Status status) {
    switch (status) {
        case EndRecord::Status::finished:
            return "FINISHED";
        case EndRecord::Status::cancelled:
            return "KILLED";
        case EndRecord::Status::failed:
            return "FAILED";
    }
    return "FAILED";
}

}  // namespace distilld::sinks
