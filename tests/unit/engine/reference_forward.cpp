#include "tests/unit/engine/reference_forward.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem_tests {
namespace {

using Vector = std::vector<double>;

Vector multiply(const std::vector<float>& weight, const Vector& x) {
  Vector y(weight.size() / x.size(), 0.0);
  for (size_t o = 0; o < y.size(); ++o) {
    for (size_t i = 0; i < x.size(); ++i) {
      y[o] += static_cast<double>(weight[o * x.size() + i]) * x[i];
    }
  }
  return y;
}

void add_to(Vector& sum, const Vector& term) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
}

// Norm of the `count` values from `begin`, in place.
void norm_part(Vector& x, size_t begin, const std::vector<float>& weight, double epsilon) {
  double squares = 0;
  for (size_t i = 0; i < weight.size(); ++i) squares += x[begin + i] * x[begin + i];
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(weight.size()) + epsilon);
  for (size_t i = 0; i < weight.size(); ++i) {
    x[begin + i] *= scale * static_cast<double>(weight[i]);
  }
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }

double to_f16(double x) {
  if (x == 0) return 0;
  int exponent = 0;
  (void)std::frexp(x, &exponent);
  const double step = std::ldexp(1.0, std::max(exponent - 11, -24));
  return std::nearbyint(x / step) * step;
}

class Reference {
 public:
  explicit Reference(const RandomModel& model)
      : m_(model),
        s_(model.spec),
        keys_(static_cast<size_t>(s_.layers)),
        values_(static_cast<size_t>(s_.layers)),
        conv_(static_cast<size_t>(s_.layers)),
        state_(static_cast<size_t>(s_.layers)) {}

  Vector next(int32_t token) {
    const auto& table = m_.at("token_embd.weight");
    const auto from = table.begin() + token * s_.width;
    Vector x(from, from + s_.width);
    for (int64_t layer = 0; layer < s_.layers; ++layer) {
      const std::string p = "blk." + std::to_string(layer) + ".";
      Vector a = x;
      norm_part(a, 0, m_.at(p + "attn_norm.weight"), s_.norm_epsilon);
      add_to(x, s_.attends(layer) ? attend(layer, p, a) : delta(layer, p, a));
      Vector f = x;
      norm_part(f, 0, m_.at(p + (s_.hybrid() ? "post_attention_norm.weight" : "ffn_norm.weight")),
                s_.norm_epsilon);
      Vector gate = multiply(m_.at(p + "ffn_gate.weight"), f);
      const Vector up = multiply(m_.at(p + "ffn_up.weight"), f);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = silu(gate[i]) * up[i];
      add_to(x, multiply(m_.at(p + "ffn_down.weight"), gate));
    }
    norm_part(x, 0, m_.at("output_norm.weight"), s_.norm_epsilon);
    ++position_;
    return multiply(m_.at(s_.tied ? "token_embd.weight" : "output.weight"), x);
  }

 private:
  // Inverse frequency of pair i after scaling, and what multiplies cos and sin.
  [[nodiscard]] double frequency(int64_t i) const {
    const auto dims = static_cast<double>(s_.rope_dims);
    double f = std::pow(s_.rope_base, -2.0 * static_cast<double>(i) / dims);
    if (s_.rope_freqs) f /= static_cast<double>(m_.at("rope_freqs.weight")[static_cast<size_t>(i)]);
    if (s_.rope_scaling == "linear") return f / s_.rope_factor;
    if (s_.rope_scaling != "yarn") return f;
    const auto correction = [&](double beta) {
      const auto original = static_cast<double>(s_.yarn_original_context);
      return dims * std::log(original / (2 * std::numbers::pi * beta)) /
             (2 * std::log(s_.rope_base));
    };
    const double low = std::max(0.0, std::floor(correction(32)));
    const double high = std::min(dims - 1, std::ceil(correction(1)));
    const double r =
        1 - std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
    return f / s_.rope_factor * (1 - r) + f * r;
  }

  void rotate(Vector& x, size_t head_begin) const {
    const double magnitude = s_.rope_scaling == "yarn"
                                 ? s_.yarn_attention_factor * (1 + 0.1 * std::log(s_.rope_factor))
                                 : 1.0;
    const int64_t half = s_.rope_dims / 2;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position_) * frequency(i);
      const bool adjacent = s_.family == "llama";
      double& a = x[head_begin + static_cast<size_t>(adjacent ? 2 * i : i)];
      double& b = x[head_begin + static_cast<size_t>(adjacent ? 2 * i + 1 : i + half)];
      const double c = std::cos(angle) * magnitude;
      const double s = std::sin(angle) * magnitude;
      const double rotated = a * c - b * s;
      b = a * s + b * c;
      a = rotated;
    }
  }

  Vector project(const std::string& name, const Vector& a) const {
    Vector y = multiply(m_.at(name + ".weight"), a);
    if (m_.tensors.count(name + ".bias") != 0) {
      const auto& bias = m_.at(name + ".bias");
      for (size_t i = 0; i < y.size(); ++i) y[i] += static_cast<double>(bias[i]);
    }
    return y;
  }

  // The output product included.
  Vector attend(int64_t layer, const std::string& p, const Vector& a) {
    const auto dim = static_cast<size_t>(s_.head_dim);
    const auto heads = static_cast<size_t>(s_.heads);
    const auto kv_heads = static_cast<size_t>(s_.kv_heads);
    const Vector q_rows = project(p + "attn_q", a);
    Vector k = project(p + "attn_k", a);
    Vector v = project(p + "attn_v", a);
    Vector q(heads * dim);
    Vector gate(heads * dim, 0.0);
    const size_t parts = s_.hybrid() ? 2 : 1;
    for (size_t h = 0; h < heads; ++h) {
      for (size_t i = 0; i < dim; ++i) {
        q[h * dim + i] = q_rows[h * parts * dim + i];
        if (s_.hybrid()) gate[h * dim + i] = q_rows[h * parts * dim + dim + i];
      }
    }
    const bool head_norms = m_.tensors.count(p + "attn_q_norm.weight") != 0;
    for (size_t h = 0; h < heads; ++h) {
      if (head_norms) norm_part(q, h * dim, m_.at(p + "attn_q_norm.weight"), s_.norm_epsilon);
      rotate(q, h * dim);
    }
    for (size_t h = 0; h < kv_heads; ++h) {
      if (head_norms) norm_part(k, h * dim, m_.at(p + "attn_k_norm.weight"), s_.norm_epsilon);
      rotate(k, h * dim);
    }
    for (double& value : k) value = to_f16(value);
    for (double& value : v) value = to_f16(value);
    auto& keys = keys_[static_cast<size_t>(layer)];
    auto& values = values_[static_cast<size_t>(layer)];
    keys.push_back(k);
    values.push_back(v);
    Vector out(heads * dim, 0.0);
    for (size_t h = 0; h < heads; ++h) {
      const size_t kv = h / (heads / kv_heads) * dim;
      Vector score(keys.size(), 0.0);
      for (size_t t = 0; t < keys.size(); ++t) {
        for (size_t i = 0; i < dim; ++i) score[t] += q[h * dim + i] * keys[t][kv + i];
        score[t] /= std::sqrt(static_cast<double>(dim));
      }
      const double max = *std::max_element(score.begin(), score.end());
      double sum = 0;
      for (double& value : score) sum += value = std::exp(value - max);
      for (size_t i = 0; i < dim; ++i) {
        for (size_t t = 0; t < keys.size(); ++t) {
          out[h * dim + i] += score[t] / sum * values[t][kv + i];
        }
        if (s_.hybrid()) out[h * dim + i] *= sigmoid(gate[h * dim + i]);
      }
    }
    return multiply(m_.at(p + "attn_output.weight"), out);
  }

  // Convolution over the last four inputs, oldest first, then SiLU.
  Vector convolve(int64_t layer, const std::string& p, const Vector& u) {
    auto& history = conv_[static_cast<size_t>(layer)];
    history.push_back(u);
    const auto& weight = m_.at(p + "ssm_conv1d.weight");
    Vector c(u.size(), 0.0);
    for (size_t ch = 0; ch < u.size(); ++ch) {
      for (size_t j = 0; j < 4; ++j) {
        if (history.size() + j < 4) continue;
        c[ch] += static_cast<double>(weight[ch * 4 + j]) * history[history.size() + j - 4][ch];
      }
      c[ch] = silu(c[ch]);
    }
    return c;
  }

  Vector delta(int64_t layer, const std::string& p, const Vector& a) {
    const auto dim = static_cast<size_t>(s_.delta_dim);
    const auto key_heads = static_cast<size_t>(s_.key_heads);
    const auto value_heads = static_cast<size_t>(s_.value_heads);
    const Vector c = convolve(layer, p, multiply(m_.at(p + "attn_qkv.weight"), a));
    const Vector z = multiply(m_.at(p + "attn_gate.weight"), a);
    const Vector alpha = multiply(m_.at(p + "ssm_alpha.weight"), a);
    const Vector beta = multiply(m_.at(p + "ssm_beta.weight"), a);
    auto& state = state_[static_cast<size_t>(layer)];
    state.resize(value_heads * dim * dim, 0.0);
    Vector out(value_heads * dim, 0.0);
    for (size_t h = 0; h < value_heads; ++h) {
      const size_t kh = h % key_heads;  // tiled order of GGUF files
      const auto unit = [&](size_t begin) {
        Vector x(c.begin() + static_cast<std::ptrdiff_t>(begin),
                 c.begin() + static_cast<std::ptrdiff_t>(begin + dim));
        double squares = 1e-6;
        for (const double value : x) squares += value * value;
        for (double& value : x) value /= std::sqrt(squares);
        return x;
      };
      Vector q = unit(kh * dim);
      const Vector k = unit((key_heads + kh) * dim);
      for (double& value : q) value /= std::sqrt(static_cast<double>(dim));
      const double* v = c.data() + (2 * key_heads + h) * dim;
      const auto dt_bias = static_cast<double>(m_.at(p + "ssm_dt.bias")[h]);
      const double g = static_cast<double>(m_.at(p + "ssm_a")[h]) *
                       std::log1p(std::exp(alpha[h] + dt_bias));
      double* S = state.data() + h * dim * dim;  // [key][value]
      for (size_t i = 0; i < dim * dim; ++i) S[i] *= std::exp(g);
      for (size_t j = 0; j < dim; ++j) {
        double recalled = 0;
        for (size_t i = 0; i < dim; ++i) recalled += S[i * dim + j] * k[i];
        const double change = sigmoid(beta[h]) * (v[j] - recalled);
        for (size_t i = 0; i < dim; ++i) {
          S[i * dim + j] += k[i] * change;
          out[h * dim + j] += S[i * dim + j] * q[i];
        }
      }
      norm_part(out, h * dim, m_.at(p + "ssm_norm.weight"), s_.norm_epsilon);
      for (size_t j = 0; j < dim; ++j) out[h * dim + j] *= silu(z[h * dim + j]);
    }
    return multiply(m_.at(p + "ssm_out.weight"), out);
  }

  const RandomModel& m_;
  const RandomModelSpec& s_;
  int64_t position_ = 0;
  std::vector<std::vector<Vector>> keys_;    // [layer][position]
  std::vector<std::vector<Vector>> values_;
  std::vector<std::vector<Vector>> conv_;
  std::vector<Vector> state_;
};

}  // namespace

std::vector<std::vector<double>> reference_forward(const RandomModel& model,
                                                   std::span<const int32_t> tokens) {
  Reference reference(model);
  std::vector<std::vector<double>> logits;
  for (const int32_t token : tokens) logits.push_back(reference.next(token));
  return logits;
}

}  // namespace tandem_tests
