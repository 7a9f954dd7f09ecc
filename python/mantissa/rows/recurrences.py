"""LSTM and GRU: a loop over time whose body is compiled once."""
from .. import layout, nn
from .._native import operations as native
from ..layout import Placed
from .registry import Refused, row


def _products(x, weight, bias):
    """x [T, B, C] times the weights of inputs: [T, B, gates H]."""
    T, B, C = x.shape
    y = native.matmul(x.reshape([T * B, C]), weight, False, True, bias)
    return y.reshape([T, B, weight.shape[0]])


def _lstm_layer(x, states, parameters, backward):
    of_input, of_state = parameters[:2]
    bias = parameters[2] + parameters[3] if len(parameters) > 2 else None

    def step(now, parts, whole):
        h, c = now
        sums = parts[0] + nn.matmul(h, whole[0], False, True)
        i, f, g, o = nn.split(sums, 1, 4)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * nn.tanh(g)
        return [nn.sigmoid(o) * nn.tanh(c), c], [sums]  # kept for the gradient

    kept, _ = native.scan(states, [_products(x, of_input, bias)], [of_state], step, backward)
    return kept


def _gru_layer(x, states, parameters, backward):
    of_input, of_state = parameters[:2]
    whole = [of_state] + ([parameters[3]] if len(parameters) > 2 else [])

    def step(now, parts, all_):
        h = now[0]
        ri, zi, ni = nn.split(parts[0], 1, 3)
        rh, zh, nh = nn.split(native.matmul(h, all_[0], False, True, all_[1] if len(all_) > 1 else None), 1, 3)
        of_reset, of_update = ri + rh, zi + zh
        fresh = nn.tanh(ni + nn.sigmoid(of_reset) * nh)
        # The outputs are kept for the gradient.
        return [fresh + nn.sigmoid(of_update) * (h - fresh)], [of_reset, of_update, nh, fresh]

    products = _products(x, of_input, parameters[2] if len(parameters) > 2 else None)
    return native.scan(states, [products], whole, step, backward)[0]


def _rnn_layer(x, states, parameters, backward, activation):
    of_input, of_state = parameters[:2]
    bias = parameters[2] + parameters[3] if len(parameters) > 2 else None

    def step(now, parts, whole):
        return [activation(parts[0] + nn.matmul(now[0], whole[0], False, True))], []

    return native.scan(states, [_products(x, of_input, bias)], [of_state], step, backward)[0]


def _recurrent(at, layer, input, begins, params, options):
    """Output, and the last of each state: layers over each other, each in one or both directions."""
    has_biases, num_layers, dropout, train, bidirectional, batch_first = options
    x = layout.plain(layout.permuted(input, [1, 0, 2]) if batch_first else input)
    each = 4 if has_biases else 2
    directions = 2 if bidirectional else 1
    if len(params) != each * num_layers * directions:
        raise Refused("projections of a recurrent layer", "Leave proj_size at 0.")
    T = x.shape[0]
    lasts = [[] for _ in begins]
    for index in range(num_layers):
        outputs = []
        for direction in range(directions):
            at_state = index * directions + direction
            parameters = [layout.plain(p) for p in params[at_state * each:(at_state + 1) * each]]
            states = [nn.slice(b, 0, at_state, at_state + 1).reshape(list(b.shape[1:])) for b in begins]
            kept = layer(x, states, parameters, direction == 1)
            for last, all_ in zip(lasts, kept):
                last.append(nn.slice(all_, 0, 0, 1) if direction else nn.slice(all_, 0, T, T + 1))
            outputs.append(nn.slice(kept[0], 0, 0, T) if direction else nn.slice(kept[0], 0, 1, T + 1))
        x = outputs[0] if directions == 1 else nn.concat(outputs, 2)
        if dropout and train and at.is_training and not at.is_still and index + 1 < num_layers:
            x = native.dropout(x, dropout)
    output = Placed(x)
    if batch_first:
        output = layout.permuted(output, [1, 0, 2])
    return (output,) + tuple(Placed(last[0] if len(last) == 1 else nn.concat(last, 0)) for last in lasts)


@row("aten.lstm")
def lstm(at, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first=False, **_):
    options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    return _recurrent(at, _lstm_layer, input, [layout.plain(h) for h in hx], params, options)


@row("aten.gru")
def gru(at, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first=False, **_):
    options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    return _recurrent(at, _gru_layer, input, [layout.plain(hx)], params, options)


def _rnn(op, activation):
    @row(op)
    def record(at, input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first=False, **_):
        options = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
        return _recurrent(at, lambda x, s, p, b: _rnn_layer(x, s, p, b, activation), input, [layout.plain(hx)], params,
                          options)


_rnn("aten.rnn_tanh", nn.tanh)
_rnn("aten.rnn_relu", nn.relu)


@row("aten.lstm_cell")
def lstm_cell(at, input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    h, c = (layout.plain(x) for x in hx)
    sums = native.matmul(layout.plain(input), layout.plain(w_ih), False, True,
                         None if b_ih is None else layout.plain(b_ih)) + \
        native.matmul(h, layout.plain(w_hh), False, True, None if b_hh is None else layout.plain(b_hh))
    i, f, g, o = nn.split(sums, 1, 4)
    c = nn.sigmoid(f) * c + nn.sigmoid(i) * nn.tanh(g)
    return Placed(nn.sigmoid(o) * nn.tanh(c)), Placed(c)


@row("aten.gru_cell")
def gru_cell(at, input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    h = layout.plain(hx)
    ri, zi, ni = nn.split(native.matmul(layout.plain(input), layout.plain(w_ih), False, True,
                                        None if b_ih is None else layout.plain(b_ih)), 1, 3)
    rh, zh, nh = nn.split(native.matmul(h, layout.plain(w_hh), False, True,
                                        None if b_hh is None else layout.plain(b_hh)), 1, 3)
    reset, update = nn.sigmoid(ri + rh), nn.sigmoid(zi + zh)
    fresh = nn.tanh(ni + reset * nh)
    return Placed(fresh + update * (h - fresh))


