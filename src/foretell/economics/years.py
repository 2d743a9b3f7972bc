"""Capital into yearly charges, years into hours, and buying beside renting.

The price of an hour of a chip's work (u the share of hours in which it works):

    [sum of C_i crf(r, n_i) + upkeep + people + idle energy] / (8760 u chips) + watts in use x PUE x price

crf(r, n) = r / (1 - (1+r)^-n), and 1/n without interest. All broadcast.
"""

import numpy as np

from foretell.specs._base import Num

HOURS = 8760.0
"""Hours of a year."""


def yearly_share(rate: Num, years: Num) -> Num:
    """crf: what each of `years` equal payments is of a sum that bears interest."""
    r, n = np.asarray(rate, float), np.asarray(years, float)
    small = np.maximum(r, 1e-12)
    return np.where(r > 1e-12, small / -np.expm1(-n * np.log1p(small)), 1.0 / n)


def charge_usd(capital_usd: Num, rate: Num, years: Num, residual: Num = 0.0) -> Num:
    """Yearly charge of what is worth `residual` of its price at the end."""
    kept = np.asarray(residual) * (1.0 + np.asarray(rate)) ** -np.asarray(years, float)
    return np.asarray(capital_usd * (1.0 - kept) * yearly_share(rate, years))


def interest_usd(capital_usd: Num, rate: Num, years: Num, residual: Num = 0.0) -> Num:
    """The part of that charge that is not the loss of worth spread evenly."""
    worn = capital_usd * (1.0 - np.asarray(residual)) / years
    return charge_usd(capital_usd, rate, years, residual) - worn


def break_even_years(capital_usd: Num, rent_usd_per_year: Num, running_usd_per_year: Num) -> Num:
    """Years of rent that pay for buying; infinite where running costs as much as renting."""
    saved = np.asarray(rent_usd_per_year, float) - running_usd_per_year
    with np.errstate(divide="ignore"):
        return np.where(saved > 0.0, capital_usd / np.where(saved > 0.0, saved, 1.0), np.inf)


def break_even_utilisation(fixed_usd_per_year: Num, rent_usd_per_hour: Num, hourly_usd: Num) -> Num:
    """Share of the hours from which owning is cheaper than renting by the hour; above 1: never.

    Fixed costs of a year over 8760 x (rent - what an hour of work adds).
    """
    gain = np.asarray(rent_usd_per_hour, float) - hourly_usd
    return np.where(
        gain > 0.0, fixed_usd_per_year / (HOURS * np.where(gain > 0, gain, 1.0)), np.inf
    )
